"""What serving keeps in the memory of a GPU, of the kind of replica that keeps most."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocelab.jobs.gpu_memory import RESERVED, check_memory
from rocelab.jobs.gpus import Precision
from rocelab.jobs.inference_spec import ServedModel, ServingSpec
from rocelab.jobs.model_shape import BF16_BYTES
from rocelab.jobs.workloads import MemoryPart

CHUNK_TOKENS = 16384
"""Of prompts that a replica computes at once; more go one after the other. Assumed."""


def serving_memory(spec: ServingSpec) -> tuple[MemoryPart, ...]:
    """The parts of a GPU that prefills, or of one that decodes where that keeps more."""
    prompts = spec.batch * spec.prompt
    prefill = kept_memory(spec, spec.expert, prompts, min(prompts, CHUNK_TOKENS))
    known = spec.requests * (spec.prompt + spec.output)
    decode = kept_memory(spec, spec.decoding, known, spec.requests)
    return max(prefill, decode, key=lambda parts: sum(part.bytes for part in parts))


def kept_memory(spec: ServedModel, expert: int, cached: int, tokens: int) -> tuple[MemoryPart, ...]:
    """cached: tokens of a replica in the cache. tokens: those under way."""
    model, gpus = spec.model, spec.tensor * spec.pipeline
    experts = model.expert_parameters * spec.copies / model.experts / expert
    weights = spec.speed.weight_bytes * (model.dense_parameters + experts) / gpus
    widest = model.up_matrices * model.ffn
    if model.has_experts:
        width = model.top_k + model.shared_experts
        widest = width * (model.hidden + model.up_matrices * model.expert_width)
    values = 4 * model.hidden + model.q_hidden + 2 * model.kv_hidden + widest
    return (
        MemoryPart("parameters", weights),
        MemoryPart("KV cache", cached * spec.cache_bytes),
        MemoryPart("activations", BF16_BYTES * tokens * values / spec.tensor),
        RESERVED,
    )


def check_serving_memory(spec: ServingSpec) -> None:
    """Raise RefusedError if a job exceeds its type of GPU."""
    changes: dict[str, dict[str, object]] = {}
    wider = 2 * spec.tensor
    if not (spec.server_gpus % wider or spec.model.heads % wider):
        changes[f"tensor: {wider}"] = {"tensor": wider}
    if 2 * spec.pipeline <= spec.model.layers:
        changes[f"pipeline: {2 * spec.pipeline}"] = {"pipeline": 2 * spec.pipeline}
    if spec.batch > 1 and spec.prefill * (spec.batch // 2) >= spec.decode:
        changes[f"batch: {spec.batch // 2}"] = {"batch": spec.batch // 2}
    if spec.speed.weight_bytes == BF16_BYTES:
        changes["precision: fp8"] = {"precision": Precision.FP8}

    def of(update: dict[str, object]) -> Callable[[], Sequence[MemoryPart]]:
        return lambda: serving_memory(spec.model_copy(update=update))

    ways = {text: of(update) for text, update in changes.items()}
    check_memory(None if spec.ignore_memory else spec.gpu, serving_memory(spec), ways)
