"""What a job keeps in the memory of a GPU, part by part, and whether it fits.

Of training the GPU of the first stage, which keeps the activations of most micro-batches, or of the
last, which has the output matrix's; a refusal says the largest part and what would make it fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from rocelab.base.wording import RefusedError, listed
from rocelab.jobs.experts import routing_of
from rocelab.jobs.gpus import GPUS, Precision
from rocelab.jobs.model_shape import BF16_BYTES, FP32_BYTES, ModelShape
from rocelab.jobs.training_spec import (
    PipelineSchedule,
    Recompute,
    Sharding,
    TrainingSpec,
)
from rocelab.jobs.workloads import MemoryPart

RESERVED_BYTES = 4 * 2**30
"""The CUDA context, NCCL's buffers and what the allocator cannot use. Assumed."""
RESERVED = MemoryPart("context, buffers", RESERVED_BYTES)
GIB = 2**30

_ALL = (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3, Sharding.FSDP)
_GRADIENTS = (Sharding.ZERO2, Sharding.ZERO3, Sharding.FSDP)


def training_memory(spec: TrainingSpec) -> tuple[MemoryPart, ...]:
    """The parts of a training job, in bytes.

    Parameters in bf16; gradients in fp32 where they are sharded, else in bf16; the optimizer's
    `optimizer_bytes` for each parameter; DualPipe keeps two stages' parameters and gradients
    (DeepSeek-AI 2024, table 2).
    """
    dense, experts = _held(spec)
    replicas = spec.data * spec.context
    of_experts = max(1, replicas * spec.spread_tensor // spec.expert)

    def kept(element_bytes: float, shared: bool) -> float:
        if shared:
            return element_bytes * (dense / replicas + experts / of_experts)
        return element_bytes * (dense + experts)

    copies = 2 if spec.schedule is PipelineSchedule.DUALPIPE else 1
    gradient_bytes = BF16_BYTES if spec.sharding is Sharding.NONE else FP32_BYTES
    parameters = copies * kept(BF16_BYTES, spec.sharding is Sharding.ZERO3)
    if spec.sharding is Sharding.ZERO3:
        # Those of one layer are whole while it computes.
        parameters += BF16_BYTES * (dense + experts) * spec.pipeline / spec.model.layers
    return (
        MemoryPart("parameters", parameters),
        MemoryPart("gradients", copies * kept(gradient_bytes, spec.sharding in _GRADIENTS)),
        MemoryPart("optimizer", kept(spec.optimizer_bytes, spec.sharding in _ALL)),
        MemoryPart("activations", _activations(spec)),
        RESERVED,
    )


def _held(spec: TrainingSpec) -> tuple[float, float]:
    """Parameters of a stage's slice, outside of experts and in experts."""
    ahead, ahead_experts = spec.model.ahead_parameters
    dense = (spec.model.dense_parameters + ahead) / (spec.tensor * spec.pipeline)
    experts = spec.model.expert_parameters + ahead_experts
    return dense, experts / (spec.divided_expert * spec.pipeline * spec.expert)


def kept_values(
    model: ModelShape, recompute: Recompute, precision: Precision, *, busiest: float = 1.0
) -> float:
    """Bytes that a layer keeps for a token until its backward pass, on all the GPUs that divide it.

    What each kernel reads: the residual stream twice, normalised twice, queries, keys, values and
    what attention gives, the feed-forward part before and after its activation, in bf16 and where a
    product reads it in fp8 in that (Korthikanti et al. 2022, section 4, with flash attention and
    for gated parts). Experts keep the same for each of a token's copies. Selective: what is
    normalised, activated or made of latent vectors is computed again. busiest: tokens of the
    busiest GPU's experts over the mean.
    """
    hidden = model.hidden
    read = 1 if precision is Precision.FP8 else BF16_BYTES
    if recompute is Recompute.FULL:
        return BF16_BYTES * hidden
    heads = model.q_hidden + 2 * model.kv_hidden
    latent = 0
    if model.latent is not None:
        latent = (model.latent.q_rank or 0) + model.cached_width
        heads = 2 * model.q_hidden + model.value_hidden
    kept = BF16_BYTES * (2 * hidden + latent) + read * model.value_hidden
    if recompute is Recompute.NONE or model.latent is None:
        kept += BF16_BYTES * heads
    if recompute is Recompute.NONE:
        kept += 2 * read * hidden
    before, after = model.up_matrices, 1 if recompute is Recompute.NONE else 0
    width: float = model.ffn * (before * BF16_BYTES + after * read)
    if model.has_experts:
        # Most layers have experts; all count as if they had.
        part = model.expert_width * (before * read + after * read)
        width = model.shared_experts * part + model.top_k * busiest * (part + read * hidden)
    return kept + width


def _activations(spec: TrainingSpec) -> float:
    model = spec.model
    tokens = spec.micro_batch * spec.tokens / (spec.context * spec.tensor)
    busiest = 1.0
    if model.has_experts:
        busiest = routing_of(model, spec.routing, spec.expert).busiest
    layer = tokens * kept_values(model, spec.recompute, spec.precision, busiest=busiest)
    whole = tokens * kept_values(model, Recompute.NONE, spec.precision, busiest=busiest)
    layers = model.layers / spec.pipeline
    # The layer under way has all that it computes again.
    under_way = whole - layer
    logits = tokens * model.vocab * (FP32_BYTES + BF16_BYTES)
    first = _in_flight(spec) * layers * layer + under_way
    last = max(1, spec.interleave) / spec.interleave * layers * layer + under_way + logits
    return max(first, last)


def _in_flight(spec: TrainingSpec) -> float:
    """Micro-batches whose activations the first stage keeps at once (Narayanan et al. 2021, section
    2.2; DeepSeek-AI 2024 (DeepSeek-V3), table 2)."""
    stages, chunks = spec.pipeline, spec.interleave
    if spec.schedule is PipelineSchedule.DUALPIPE:
        return stages + 1
    if chunks == 1:
        return min(stages, spec.micro_batches)
    most = 2 * (stages - 1) + (chunks - 1) * stages + 1
    return min(most, spec.micro_batches * chunks) / chunks


def check_memory(
    gpu: str | None,
    parts: Sequence[MemoryPart],
    ways: Mapping[str, Callable[[], Sequence[MemoryPart]]],
) -> None:
    """Raise RefusedError if a job's parts exceed its type of GPU, None for one that is not known.
    ways: by text, what other jobs keep that a hint may offer."""
    if gpu is None:
        return
    holds = GPUS[gpu].memory_bytes
    total = sum(part.bytes for part in parts)
    if total <= holds:
        return
    largest = max(parts, key=lambda part: part.bytes)
    fitting = [text for text, kept in ways.items() if _sum(kept()) <= holds]
    offer = f"it would fit with {listed(fitting[:3], 'or')}; or " if fitting else ""
    raise RefusedError(
        f"a GPU would keep {total / GIB:,.1f} GiB, of which the largest part is {largest.name} "
        f"({largest.bytes / GIB:,.1f} GiB), and {gpu} has {holds / GIB:,.1f} GiB",
        f"{offer}ignore_memory: true simulates it all the same"
        if fitting
        else "divide the model over more GPUs; ignore_memory: true simulates it all the same",
        keys=("gpu", "model"),
    )


def _sum(parts: Iterable[MemoryPart]) -> float:
    return sum(part.bytes for part in parts)


def check_training_memory(spec: TrainingSpec) -> None:
    """Raise RefusedError if a training job exceeds its type of GPU."""
    changes: dict[str, dict[str, object]] = {}
    if spec.recompute is Recompute.NONE:
        changes["recompute: selective"] = {"recompute": Recompute.SELECTIVE}
    if spec.recompute is not Recompute.FULL:
        changes["recompute: full"] = {"recompute": Recompute.FULL}
    if spec.sharding in (Sharding.NONE, Sharding.ZERO1) and spec.data * spec.context > 1:
        changes["sharding: fsdp"] = {"sharding": Sharding.FSDP}
        changes["sharding: fsdp and recompute: full"] = {
            "sharding": Sharding.FSDP,
            "recompute": Recompute.FULL,
        }
    if spec.sharding is not Sharding.ZERO3 and spec.data * spec.context > 1:
        changes["sharding: zero3"] = {"sharding": Sharding.ZERO3}
    wider = 2 * spec.tensor
    if not (spec.server_gpus % wider or spec.model.heads % wider or spec.expert_tensor == 1):
        changes[f"tensor: {wider}"] = {"tensor": wider}
    if spec.micro_batch > 1:
        changes["micro_batch: 1"] = {"micro_batch": 1}
    deeper = 2 * spec.pipeline
    if deeper * spec.interleave <= spec.model.layers:
        changes[f"pipeline: {deeper}"] = {"pipeline": deeper}

    def of(update: dict[str, object]) -> Callable[[], Sequence[MemoryPart]]:
        return lambda: training_memory(spec.model_copy(update=update))

    ways = {text: of(update) for text, update in changes.items()}
    check_memory(None if spec.ignore_memory else spec.gpu, training_memory(spec), ways)
