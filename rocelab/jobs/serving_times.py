"""How long serving takes on a GPU: the prefill of prompts, and the next token of every answer."""

from __future__ import annotations

from rocelab.base.wording import counted
from rocelab.jobs import kernels
from rocelab.jobs.experts import Overlap, TokenRouting, routing_of
from rocelab.jobs.inference_spec import ServedModel, ServingSpec
from rocelab.jobs.kernels import FORWARD_ATTENTION, LAUNCH_S, READ_SHARE, SUSTAINED, GpuShare
from rocelab.jobs.model_shape import BF16_BYTES
from rocelab.jobs.training_basis import speed_basis
from rocelab.jobs.volumes import activation_bytes


def routing(spec: ServedModel, *, decodes: bool, seed: int = 1) -> TokenRouting:
    """Where tokens of a job's model go, in prefill or in decode."""
    ranks, chosen = (
        (spec.decoding, spec.routing_to_decode) if decodes else (spec.expert, spec.routing)
    )
    return routing_of(spec.model, chosen, ranks, copies=spec.redundant_experts, seed=seed)


def prefill_s(spec: ServingSpec, *, nvlink: bool, seed: int = 1) -> float:
    """A stage's time for all prompts of a replica; of their last tokens also the output matrix."""
    routed = routing(spec, decodes=False, seed=seed) if spec.model.has_experts else None
    seconds = prompts_s(spec, routed, spec.batch * spec.prompt, spec.prompt, spec.batch)
    return seconds + nvlink * tensor_s(spec, spec.batch, spec.prompt)


def prompts_s(
    spec: ServedModel, routed: TokenRouting | None, tokens: float, sequence: int, prompts: float
) -> float:
    """A stage's time to compute so many tokens of prompts, of which each attends to `sequence`
    others with a causal mask, without tensor parallel exchanges. routed: of a model with experts,
    where its tokens go."""
    model, speed = spec.model, spec.speed
    parts = 2 if spec.routing.overlap is Overlap.MICRO_BATCHES else 1
    busiest = 1.0 if routed is None else routed.busiest
    share = GpuShare(tokens / parts, sequence, spec.tensor, spec.expert, expert_tokens=busiest)
    seconds = parts * kernels.forward_s(model, speed, share)
    seconds += kernels.output_s(model, speed, prompts, spec.tensor)
    return seconds / spec.pipeline


def token_s(spec: ServingSpec, *, nvlink: bool, seed: int = 1) -> float:
    """A stage's time for the next token of all requests."""
    routed = routing(spec, decodes=True, seed=seed) if spec.model.has_experts else None
    known = spec.prompt + spec.output // 2
    seconds = iteration_s(spec, routed, spec.requests, known)
    return seconds + nvlink * tensor_s(spec, spec.requests, 1)


def iteration_s(
    spec: ServedModel, routed: TokenRouting | None, requests: float, known: float
) -> float:
    """A stage's time for the next token of `requests` with `known` cached ones each: of each
    product the longer of its computation and one read of its matrix, and the cached keys and
    values (Pope et al. 2022, section 2). Of experts those are read that some token goes to. Two
    micro-batches read everything twice. Tensor parallel exchanges are not in it."""
    model = spec.model
    parts = 2 if spec.routing_to_decode.overlap is Overlap.MICRO_BATCHES else 1
    part = requests / parts
    share = GpuShare(part, 1, spec.tensor, spec.decoding)
    if routed is not None:
        share = GpuShare(
            part,
            1,
            spec.tensor,
            spec.decoding,
            expert_tokens=routed.busiest,
            read_experts=routed.experts_read(part),
        )
    seconds = parts * kernels.decode_s(model, spec.speed, share)
    seconds += model.layers * cached_s(spec, requests, known, parts)
    return seconds / spec.pipeline


def cached_s(spec: ServedModel, requests: float, known: float, parts: int = 1) -> float:
    """A layer's attention of one token of each request to `known` cached ones: the longer of one
    read and its products. Of latent attention every head multiplies the cached vector itself
    (DeepSeek-AI 2024 (DeepSeek-V2), section 2.1.3)."""
    model, speed = spec.model, spec.speed
    read = requests * known * spec.cache_bytes * spec.pipeline / model.layers
    width = model.q_hidden + model.value_hidden
    if model.latent is not None:
        width = model.heads * (model.cached_width + model.latent.kv_rank)
    flops = 2 * requests * known * width / spec.tensor
    if speed.constant_flops is not None or speed.gpu is None:
        assert speed.constant_flops is not None
        return max(read / speed.memory_bps, flops / speed.constant_flops)
    reached = speed.gpu.bf16_flops * FORWARD_ATTENTION * SUSTAINED
    return max(read / (READ_SHARE * speed.memory_bps), flops / reached) + parts * LAUNCH_S


def tensor_s(spec: ServedModel, sequences: int, tokens: int) -> float:
    """A stage's tensor parallel all-reduces, two per layer, over NVLink."""
    factor = 2 * (spec.tensor - 1) / spec.tensor * 2 * spec.model.layers / spec.pipeline
    return factor * activation_bytes(spec.model, sequences, tokens, 1) / spec.nvlink_bps


def served_basis(spec: ServedModel) -> tuple[str, ...]:
    """What the times of GPUs rest on, in sentences."""
    origin = "given" if spec.memory else spec.gpu or "an H100's"
    return (
        *speed_basis(spec.gpu, spec.gpu_flops, spec.precision),
        f"assumed: {counted(spec.speed.weight_bytes, 'byte')} a parameter, {BF16_BYTES} bytes "
        f"a value of the cache, read at {spec.speed.memory_bps / 1e12:g} TB/s ({origin})",
    )


def serving_basis(spec: ServingSpec, seed: int = 1) -> tuple[str, ...]:
    """What the figures of a wave rest on, in sentences."""
    lines = list(served_basis(spec))
    if spec.model.has_experts:
        routed = routing(spec, decodes=True, seed=seed)
        parts = 2 if spec.routing_to_decode.overlap is Overlap.MICRO_BATCHES else 1
        met = routed.experts_read(spec.requests / parts)
        lines.append(
            f"predicted: a decoding GPU meets {met:.1f} of its {spec.copies / spec.decoding:g} "
            "experts a layer and micro-batch; the busiest gets "
            f"{routed.busiest:.2f} times the mean of tokens"
        )
    lines.append(
        "assumed: one wave at a time, prompts and answers of one length, no queues, no reuse of "
        "prefixes; TTFT is prefill, the cache's way and one token"
    )
    return tuple(lines)
