"""Steps of training and tokens of serving, by the tables of GPU types.

NICs of 400G (200G for A100) alone limit the network; layouts are published, or what the settings of
the rows say. `model/fit/` are the cells that `rocelab.jobs.kernels.SUSTAINED` was fitted on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.validation.tasks import Found, Task
from rocelab import InferenceSpec, TrainingSpec, serving_estimate, training_estimate

NIC_BPS = 400e9
SEQUENCES = 15_360
"""Of a step of DeepSeek-V3."""

FITTED = "model/fit/"
MEGATRON: Mapping[str, Any] = {"precision": "fp8", "sharding": "zero1", "gpu": "h100"}
LLAMA: Mapping[str, Any] = {
    "model": "llama3-405b",
    "tensor": 8,
    "pipeline": 16,
    "interleave": 4,
    "sharding": "fsdp",
    "gpu": "h100",
}
DEEPSEEK: Mapping[str, Any] = {
    "model": "deepseek-v3",
    "pipeline": 16,
    "data": 128,
    "expert": 64,
    "schedule": "dualpipe",
    "micro_batches": 120,
    "sharding": "zero1",
    "optimizer_bytes": 8,
    "recompute": "selective",
    "precision": "fp8",
    "gpu": "h800",
    "routing": {"exchange": "per-server", "dispatch": "fp8"},
}
L70 = {"model": "llama3-70b", "tensor": 4, "pipeline": 8, "data": 2, "interleave": 5}
L405 = {
    "model": "llama3-405b",
    "tensor": 8,
    "pipeline": 8,
    "context": 2,
    "data": 8,
    "interleave": 8,
}
HIDDEN = {"tensor_overlap": "70%"}
JOBS: Mapping[str, Mapping[str, Any]] = {
    "fit/llama3-8b": {
        **MEGATRON,
        "model": "llama3-8b",
        "data": 8,
        "micro_batches": 16,
        "sharding": "fsdp",
        "recompute": "selective",
    },
    "fit/llama3-70b": {**MEGATRON, **L70, **HIDDEN, "micro_batches": 64},
    "fit/llama3-405b": {**MEGATRON, **L405, **HIDDEN, "micro_batches": 64},
    "megatron/llama3-70b/256": {**MEGATRON, **L70, **HIDDEN, "micro_batches": 128},
    "megatron/llama3-405b/1536": {**MEGATRON, **L405, **HIDDEN, "micro_batches": 192},
    "megatron/qwen3-235b": {
        **MEGATRON,
        "model": "qwen3-235b",
        "tensor": 2,
        "expert_tensor": 1,
        "pipeline": 8,
        "data": 16,
        "expert": 32,
        "interleave": 4,
        "micro_batches": 128,
    },
    "megatron/deepseek-v3": {
        **MEGATRON,
        "model": "deepseek-v3",
        "tensor": 2,
        "expert_tensor": 1,
        "pipeline": 8,
        "data": 64,
        "expert": 64,
        "interleave": 4,
        "micro_batches": 128,
    },
    "megatron/llama3-8b/b200": {
        **MEGATRON,
        "model": "llama3-8b",
        "gpu": "b200",
        "data": 8,
        "micro_batches": 8,
        "micro_batch": 2,
    },
    "megatron/llama3-405b/b200": {
        **MEGATRON,
        **L405,
        **HIDDEN,
        "gpu": "b200",
        "tensor": 4,
        "data": 2,
        "micro_batches": 32,
    },
    "megatron/deepseek-v3/b200": {
        **MEGATRON,
        "model": "deepseek-v3",
        "gpu": "b200",
        "pipeline": 16,
        "data": 16,
        "expert": 8,
        "micro_batches": 128,
    },
    "llama3/8k": {**LLAMA, "data": 64, "micro_batches": 32, "ignore_memory": True},
    "llama3/16k": {**LLAMA, "data": 128, "micro_batches": 16},
    "llama3/131k": {
        **LLAMA,
        "data": 8,
        "context": 16,
        "sequence": 131072,
        "micro_batches": 16,
    },
    "megascale/12288": {
        "model": "gpt3-175b",
        "tensor": 8,
        "pipeline": 8,
        "data": 192,
        "interleave": 6,
        "micro_batches": 32,
        "sharding": "zero2",
        "gpu": "a100",
        **HIDDEN,
    },
    "deepseek/step": DEEPSEEK,
}
DECODE: Mapping[str, Any] = {
    "model": "deepseek-v3",
    "prefill": 144,
    "decode": 144,
    "expert": 144,
    "redundant_experts": 32,
    "precision": "fp8",
    "gpu": "h800",
    "output": 512,
    "routing": {"dispatch": "fp8", "overlap": "micro-batches"},
}
SERVED: Mapping[str, tuple[int, float]] = {"deepseek": (4989, 1 / 21), "rtp-llm": (5120, 0.05)}
"""Cached tokens of a mean token, and seconds from one to the next."""


def tasks(_: int) -> list[Task]:
    return [Task(trained, (name,)) for name in JOBS] + [Task(served), Task(cached)]


def trained(name: str) -> Found:
    """TFLOP/s of a GPU, and of some the MFU, the step and days for a trillion tokens."""
    spec = TrainingSpec.model_validate(JOBS[name])
    parts = training_estimate(spec, NIC_BPS / 2 if spec.gpu == "a100" else NIC_BPS)
    cells = {f"model/{name}": [parts.gpu_flops / 1e12]}
    if (peak := spec.peak_flops) is not None:
        cells[f"model/{name}/mfu"] = [parts.gpu_flops / peak]
    if name == "deepseek/step":
        tokens = SEQUENCES * spec.tokens
        cells[f"model/{name}/seconds"] = [parts.total_s]
        cells[f"model/{name}/days"] = [1e12 / tokens * parts.total_s / 86400]
    return cells


def served() -> Found:
    """Tokens per second of a server of eight GPUs that decode, at the batch with the published time
    from token to token, and of eight that prefill."""
    return {
        f"model/decode/{name}": [8 * batch_of(known, seconds) / seconds]
        for name, (known, seconds) in SERVED.items()
    } | {
        "model/prefill/even": [_prefilled()],
    }


def batch_of(known: int, seconds: float) -> int:
    """The most requests of a GPU whose next token takes no longer."""
    low, high = 1, 512
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _token_s(middle, known) <= seconds else (low, middle - 1)
    return low


def _spec(**keys: object) -> InferenceSpec:
    return InferenceSpec.model_validate({**DECODE, **keys})


def _token_s(requests: int, known: int) -> float:
    # The mean token of an answer finds half of the answer in the cache.
    prompt = known - DECODE["output"] // 2
    spec = _spec(batch=requests, prompt=prompt, ignore_memory=True)
    return serving_estimate(spec, NIC_BPS).token_s


def _prefilled() -> float:
    """By eight GPUs, four prompts of 4,096 tokens on each."""
    spec = _spec(
        prefill=288,
        expert=32,
        decode_expert=144,
        batch=4,
        prompt=4096,
        routing={"exchange": "per-server", "dispatch": "fp8", "overlap": "micro-batches"},
    )
    return 8 * serving_estimate(spec, NIC_BPS).read_tokens_per_s


def cached() -> Found:
    """Parameters, and bytes of a token's keys and values."""
    cells = {}
    for name in ("llama3-70b", "qwen3-235b", "deepseek-v3"):
        model = TrainingSpec.model_validate({"model": name, "data": 2, "gpu_flops": "1T"}).model
        cells[f"model/cache/{name}"] = [float(model.cache_bytes)]
        cells[f"model/parameters/{name}"] = [float(model.parameters)]
    return cells
