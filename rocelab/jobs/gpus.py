"""GPU types: what a data sheet says, and what the best matrix multiplication was measured to reach.

Peaks are dense, without sparsity. `bf16_reached` and `fp8_reached` are the maximum achievable
matmul FLOPS of Bekman's Machine Learning Engineering (stas00/ml-engineering, compute/accelerator),
a search over shapes on real GPUs; where nobody measured FP8 the share of BF16 stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, Field

from rocelab.base.wording import RefusedError, described, did_you_mean, listed, shown

GB, TB, TFLOPS, GIB = 1e9, 1e12, 1e12, 2**30


class Precision(StrEnum):
    """What matrices are multiplied in."""

    BF16 = "bf16"
    FP8 = "fp8"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A type of GPU."""

    source: str
    bf16_flops: float
    """Peak, operations per second."""
    bf16_reached: float
    """The most that a matrix multiplication was measured to take of it, as a fraction."""
    fp8_flops: float
    """The same; that of bf16 for a GPU without fp8."""
    fp8_reached: float
    memory_bytes: float
    memory_bps: float
    """Bytes per second."""
    nvlink_bps: float
    """Bytes per second, one way, to the other GPUs of its server together."""
    multiprocessors: int

    def peak_flops(self, precision: Precision) -> float:
        return self.fp8_flops if precision is Precision.FP8 else self.bf16_flops

    def reached_flops(self, precision: Precision) -> float:
        """The speed of the best matrix multiplication."""
        if precision is Precision.FP8:
            return self.fp8_flops * self.fp8_reached
        return self.bf16_flops * self.bf16_reached


def _hopper(
    source: str, memory_bytes: float, memory_bps: float, nvlink_bps: float, fp8_reached: float
) -> Gpu:
    """One with H100's multiprocessors: 794.5 of 989 TFLOPS were measured in BF16."""
    return Gpu(
        source,
        bf16_flops=989 * TFLOPS,
        bf16_reached=0.803,
        fp8_flops=1979 * TFLOPS,
        fp8_reached=fp8_reached,
        memory_bytes=memory_bytes,
        memory_bps=memory_bps,
        nvlink_bps=nvlink_bps,
        multiprocessors=132,
    )


GPUS: Mapping[str, Gpu] = {
    "a100": Gpu(
        "NVIDIA A100 80GB SXM data sheet",
        bf16_flops=312 * TFLOPS,
        bf16_reached=0.869,
        fp8_flops=312 * TFLOPS,
        fp8_reached=0.869,
        memory_bytes=80 * GIB,
        memory_bps=2.039 * TB,
        nvlink_bps=300 * GB,
        multiprocessors=108,
    ),
    "h100": _hopper("NVIDIA H100 SXM data sheet", 80 * GIB, 3.35 * TB, 450 * GB, 0.709),
    # DeepSeek-AI 2025 (Insights into DeepSeek-V3), section 4.2: NVLink of 400 GB/s both ways.
    "h800": _hopper("an H100 with less NVLink", 80 * GIB, 3.35 * TB, 200 * GB, 0.709),
    "h200": _hopper("NVIDIA H200 SXM data sheet", 141 * GB, 4.8 * TB, 450 * GB, 0.734),
    "b200": Gpu(
        "NVIDIA HGX B200 data sheet",
        bf16_flops=2250 * TFLOPS,
        bf16_reached=0.776,
        fp8_flops=4500 * TFLOPS,
        fp8_reached=0.763,
        memory_bytes=180 * GB,
        memory_bps=7.7 * TB,
        nvlink_bps=900 * GB,
        multiprocessors=148,
    ),
    "gb200": Gpu(
        "NVIDIA GB200 NVL72 data sheet",
        bf16_flops=2500 * TFLOPS,
        bf16_reached=0.729,
        fp8_flops=5000 * TFLOPS,
        fp8_reached=0.723,
        memory_bytes=186 * GB,
        memory_bps=8 * TB,
        nvlink_bps=900 * GB,
        multiprocessors=148,
    ),
    # Peaks of the data sheet; 668.4 TFLOPS were measured in BF16.
    "mi300x": Gpu(
        "AMD Instinct MI300X data sheet",
        bf16_flops=1307 * TFLOPS,
        bf16_reached=0.511,
        fp8_flops=2615 * TFLOPS,
        fp8_reached=0.511,
        memory_bytes=192 * GB,
        memory_bps=5.3 * TB,
        nvlink_bps=448 * GB,
        multiprocessors=304,
    ),
}


def _known(value: object) -> object:
    if isinstance(value, str) and value in GPUS:
        return value
    got = shown(value) if isinstance(value, str) else described(value)
    hint = did_you_mean(value, GPUS) if isinstance(value, str) else None
    raise RefusedError(
        f"expected a type of GPU: {listed(GPUS)}, got {got}",
        hint or "for another type leave gpu out, and give gpu_flops",
    )


GpuName = Annotated[str, BeforeValidator(_known), Field(json_schema_extra={"enum": list(GPUS)})]
