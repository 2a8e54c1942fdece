"""How long a GPU takes for the kernels of a layer: matrix multiplications by size, attention, and
what only reads and writes memory.

A `Speed` is a GPU type's table, or a constant that the user gives. `gemm_s` is a roofline: the
multiplication's tiles on the multiprocessors, or its bytes. Where a pass of a model is concerned,
`forward_s` and `backward_s` sum the kernels of its layers on one GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from rocelab.jobs.gpus import Gpu, Precision
from rocelab.jobs.model_shape import BF16_BYTES, ModelShape

TILES = ((128, 256, 1.0), (128, 128, 0.85), (64, 128, 0.6), (64, 64, 0.4))
"""Rows and columns of the tiles that a multiplication is cut into, and their part of the best
speed: a smaller tile reads more for each operation. Assumed."""
FILL_DEPTH = 200
"""A tile's pipeline fills and drains in the time of so many of its inputs. Assumed."""
SPLIT_DEPTH = 512
"""Where tiles are fewer than multiprocessors several share one, each with so many of its inputs or
more. Assumed."""
LAUNCH_S = 3e-6
"""From the end of a kernel until the next computes. Assumed."""
READ_SHARE = 0.9
"""The share of the memory's bandwidth that a multiplication reads its matrices with. Assumed."""
COPY_SHARE = 0.8
"""The share that element-wise kernels reach. Assumed."""
ACCUMULATED_BYTES = 8
"""Read and written for each number of a matrix's gradient: micro-batches add theirs to one in fp32
(Megatron-LM's fused gradient accumulation)."""
FORWARD_ATTENTION, BACKWARD_ATTENTION = 0.55, 0.45
"""The shares of the peak that attention reaches with a causal mask (Shah et al. 2024
(FlashAttention-3), figures 5 and 6, in round numbers)."""
BACKWARD_FLOPS = 2.5
"""Operations of attention's backward pass over its forward pass: five products instead of two
(Dao 2023 (FlashAttention-2), section 4.1)."""
SUSTAINED = 0.72
"""What a whole training step reaches of what its kernels reach alone: power, stragglers and
whatever is not modelled. Fitted, on the three dense models that NVIDIA measured on H100 (Megatron
Bridge's performance summary, 25.11); docs/training.md."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a GPU computes: by a type's table, or at a constant rate of a model's operations."""

    memory_bps: float
    constant_flops: float | None = None
    """Operations per second of everything; None: by the type."""
    gpu: Gpu | None = None
    precision: Precision = Precision.BF16

    @property
    def weight_bytes(self) -> int:
        """Bytes of a parameter as it is multiplied."""
        return 1 if self.precision is Precision.FP8 else BF16_BYTES

    def at(self, precision: Precision) -> Speed:
        return replace(self, precision=precision)


def gemm_s(
    speed: Speed,
    rows: float,
    inputs: int,
    outputs: int,
    count: float = 1.0,
    product_bytes: int = BF16_BYTES,
) -> float:
    """Seconds for `count` products of rows x inputs and inputs x outputs: of the tiles that take
    least, waves of as many as there are multiprocessors, but no less than reading both and writing
    the product, of which each number takes `product_bytes`."""
    if rows <= 0 or count <= 0:
        return 0.0
    read = speed.weight_bytes * inputs * (rows + outputs)
    bytes_s = count * (read + product_bytes * rows * outputs) / speed.memory_bps
    if speed.gpu is None or speed.constant_flops is not None:
        assert speed.constant_flops is not None
        return max(bytes_s, count * 2 * rows * inputs * outputs / speed.constant_flops)
    flops = speed.gpu.reached_flops(speed.precision) * SUSTAINED
    width = speed.gpu.multiprocessors
    depth = 1 + FILL_DEPTH / inputs

    def tiled_s(tile: tuple[int, int, float]) -> float:
        high, wide, part = tile
        tiles = math.ceil(rows / high) * math.ceil(outputs / wide) * count
        waves = math.ceil(round(tiles / width, 9))
        split = max(1, min(int(width / tiles), inputs // SPLIT_DEPTH))
        return waves * width * 2 * high * wide * inputs * depth / (flops * part * split)

    return max(min(map(tiled_s, TILES)), bytes_s / READ_SHARE) + LAUNCH_S


@dataclass(frozen=True, slots=True)
class GpuShare:
    """What one GPU has of a pass."""

    tokens: float
    """That its tensor parallel group computes."""
    sequence: int
    """Tokens that each attends to, half of them on average."""
    tensor: int = 1
    expert: int = 1
    """Groups that divide the experts."""
    divided_expert: int = 0
    """GPUs of the tensor parallel group that divide an expert; 0: all."""
    expert_tokens: float = 1.0
    """Tokens that the busiest of them gets, over the mean."""
    read_experts: float | None = None
    """Of the experts on a GPU those that get tokens; None: all."""

    @property
    def expert_split(self) -> int:
        return self.divided_expert or self.tensor

    @property
    def expert_rows(self) -> float:
        """Times top_k: the rows that its experts multiply, all of them together."""
        return self.tokens * self.expert_tokens * self.expert_split / self.tensor


def forward_s(
    model: ModelShape, speed: Speed, share: GpuShare, *, layers: int | None = None
) -> float:
    """Seconds of a forward pass of `layers` layers (None: all) without the output matrix, on one of
    the GPUs that divide each layer."""
    of_experts, dense = _layers(model, layers)
    if speed.constant_flops is not None:
        return _constant_s(model, speed, share, of_experts + dense)
    total = (of_experts + dense) * (
        sum(_matrices_s(speed, _attention(model, share)))
        + attention_s(model, speed, share, FORWARD_ATTENTION)
        + _elements_s(model, speed, share)
    )
    total += dense * sum(_matrices_s(speed, _feed_forward(model, share, model.ffn)))
    return total + of_experts * (
        sum(_matrices_s(speed, _experts(model, share))) + _permuting_s(model, speed, share)
    )


def decode_s(model: ModelShape, speed: Speed, share: GpuShare) -> float:
    """Seconds of a pass of one token of each request without its attention, and with the output
    matrix: the products, whose matrices are read once."""
    dense = model.layers - model.expert_layers
    layers = [(model.layers, _attention(model, share))]
    layers += [(dense, _feed_forward(model, share, model.ffn))]
    if model.has_experts:
        layers.append((model.expert_layers, _experts(model, share)))
    seconds = sum(count * sum(_matrices_s(speed, matrices)) for count, matrices in layers if count)
    if speed.constant_flops is None:
        seconds += model.layers * _elements_s(model, speed, share)
    bf16, output = speed.at(Precision.BF16), _part(model.vocab, share.tensor)
    return seconds + gemm_s(bf16, share.tokens, model.hidden, output)


def backward_s(
    model: ModelShape, speed: Speed, share: GpuShare, *, layers: int | None = None
) -> float:
    """The same of a backward pass: the gradients of inputs and of matrices."""
    of_experts, dense = _layers(model, layers)
    if speed.constant_flops is not None:
        return 2 * _constant_s(model, speed, share, of_experts + dense)
    total = (of_experts + dense) * (
        sum(_gradients_s(speed, _attention(model, share)))
        + BACKWARD_FLOPS * attention_s(model, speed, share, BACKWARD_ATTENTION)
        + 2 * _elements_s(model, speed, share)
    )
    total += dense * sum(_gradients_s(speed, _feed_forward(model, share, model.ffn)))
    return total + of_experts * (
        sum(_gradients_s(speed, _experts(model, share))) + 2 * _permuting_s(model, speed, share)
    )


def weight_gradient_share(model: ModelShape, speed: Speed, share: GpuShare) -> float:
    """The part of a backward pass that computes gradients of matrices, which may wait."""
    if speed.constant_flops is not None:
        return 0.5
    of_experts, dense = _layers(model, None)
    products = [(of_experts + dense, _attention(model, share))]
    products += [
        (dense, _feed_forward(model, share, model.ffn)),
        (of_experts, _experts(model, share)),
    ]
    total = sum(
        layers * gemm_s(speed, inputs, round(max(rows, 1)), outputs, count, ACCUMULATED_BYTES)
        for layers, matrices in products
        for rows, inputs, outputs, count in matrices
    )
    return total / backward_s(model, speed, share)


def elements_s(model: ModelShape, speed: Speed, share: GpuShare) -> float:
    """Seconds of all layers' element-wise kernels, forward; none at a constant speed."""
    if speed.constant_flops is not None:
        return 0.0
    return model.layers * _elements_s(model, speed, share)


def output_s(model: ModelShape, speed: Speed, tokens: float, tensor: int) -> float:
    """Seconds of the output matrix forward, which stays in bf16."""
    if speed.constant_flops is not None:
        return 2 * tokens * model.hidden * model.vocab / tensor / speed.constant_flops
    return gemm_s(speed.at(Precision.BF16), tokens, model.hidden, _part(model.vocab, tensor))


def attention_s(model: ModelShape, speed: Speed, share: GpuShare, reached: float) -> float:
    """A layer's products of queries, keys and values with a causal mask, in bf16."""
    assert speed.gpu is not None
    flops = share.tokens * share.sequence * (model.q_hidden + model.value_hidden) / share.tensor
    return flops / (speed.gpu.bf16_flops * reached * SUSTAINED) + LAUNCH_S


def _constant_s(model: ModelShape, speed: Speed, share: GpuShare, layers: int) -> float:
    """Operations by formula, without the output matrix."""
    assert speed.constant_flops is not None
    flops = model.forward_flops(share.tokens, share.sequence)
    flops -= 2 * share.tokens * model.hidden * model.vocab
    busier = 0.0
    if model.has_experts and share.expert_tokens > 1:
        active = model.expert_parameters * model.top_k / model.experts
        busier = 2 * share.tokens * active * (share.expert_tokens - 1)
    return (flops + busier) / share.tensor / speed.constant_flops * layers / model.layers


Matrix = tuple[float, int, int, float]
"""Rows, inputs, outputs, and how many."""


def _matrices_s(speed: Speed, matrices: Iterable[Matrix]) -> Iterable[float]:
    for rows, inputs, outputs, count in matrices:
        yield gemm_s(speed, rows, inputs, outputs, count)


def _gradients_s(speed: Speed, matrices: Iterable[Matrix]) -> Iterable[float]:
    for rows, inputs, outputs, count in matrices:
        yield gemm_s(speed, rows, outputs, inputs, count)
        yield gemm_s(speed, inputs, round(max(rows, 1)), outputs, count, ACCUMULATED_BYTES)


def _layers(model: ModelShape, layers: int | None) -> tuple[int, int]:
    """How many have experts, and how many have none."""
    if layers is None:
        return model.expert_layers, model.layers - model.expert_layers
    return (layers, 0) if model.has_experts else (0, layers)


def _part(width: int, tensor: int) -> int:
    return -(-width // tensor)


def _attention(model: ModelShape, share: GpuShare) -> list[Matrix]:
    """A layer's matrices: those from the residual stream divide their outputs over tensor parallel
    GPUs, the last its inputs; the short ones of latent attention are whole on each."""
    matrices: list[Matrix] = []
    short = set()
    if model.latent is not None:
        short = {model.latent.q_rank, model.latent.kv_rank + model.latent.rope}
    for inputs, outputs in model.attention_matrices[:-1]:
        width = outputs if outputs in short else _part(outputs, share.tensor)
        matrices.append((share.tokens, inputs, width, 1))
    inputs, outputs = model.attention_matrices[-1]
    return [*matrices, (share.tokens, _part(inputs, share.tensor), outputs, 1)]


def _feed_forward(model: ModelShape, share: GpuShare, width: int) -> list[Matrix]:
    part = _part(width, share.tensor)
    return [
        (share.tokens, model.hidden, model.up_matrices * part, 1),
        (share.tokens, part, model.hidden, 1),
    ]


def _experts(model: ModelShape, share: GpuShare) -> list[Matrix]:
    """The router, the experts of this GPU, and the shared ones."""
    count = model.experts / share.expert if share.read_experts is None else share.read_experts
    rows = share.expert_rows * model.top_k / count
    part = _part(model.expert_width, share.expert_split)
    matrices: list[Matrix] = [
        (share.tokens / share.tensor, model.hidden, model.experts, 1),
        (rows, model.hidden, model.up_matrices * part, count),
        (rows, part, model.hidden, count),
    ]
    if model.shared_experts:
        matrices += _feed_forward(model, share, model.shared_experts * model.expert_width)
    return matrices


def _elements_s(model: ModelShape, speed: Speed, share: GpuShare) -> float:
    """Normalisations, additions, rotary positions and activations of a layer, each read and
    written: 8 h of the residual stream, twice the queries, keys and values, thrice the width of the
    feed-forward part; half as much again where everything is also written in fp8."""
    width = model.ffn
    if model.has_experts:
        width = (model.top_k + model.shared_experts) * model.expert_width
    values = 8 * model.hidden + 2 * (model.q_hidden + 2 * model.kv_hidden) + 3 * width
    factor = 1.5 if speed.precision is Precision.FP8 else 1.0
    written = factor * BF16_BYTES * share.tokens * values / share.tensor
    return written / (COPY_SHARE * speed.memory_bps) + 4 * LAUNCH_S


def _permuting_s(model: ModelShape, speed: Speed, share: GpuShare) -> float:
    """Tokens sorted by expert and back: each read and written, before and after."""
    rows = share.expert_rows * model.top_k / share.tensor
    moved = 4 * BF16_BYTES * rows * model.hidden
    return moved / (COPY_SHARE * speed.memory_bps) + 4 * LAUNCH_S
