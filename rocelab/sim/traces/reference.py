"""Compares measured times with simulated ones and fits a latency and bandwidth to them.

`compare` gives the ratio for each size; `fit_alpha_beta` fits time to latency + size / bandwidth
(the alpha-beta model of Hockney 1994, `The communication challenge for MPP`, section 2). A fluid
model leaves that latency out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls  # type: ignore[import-untyped]

from rocelab.base.errors import InputError
from rocelab.jobs.performance import busbw_factor
from rocelab.sim.traces.nccl_tests import NcclTest


@dataclass(frozen=True, slots=True)
class SizeComparison:
    """One size."""

    size_bytes: int
    measured_busbw_gbs: float
    simulated_busbw_gbs: float
    ratio: float
    """Simulated over measured bus bandwidth, from their times."""


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """time = latency + size / bandwidth. 1 GB/s is a byte per ns."""

    latency_ns: float
    bandwidth_gbs: float
    worst: float
    """The largest error of a fitted time, relative to the measured time."""

    def time_ns(self, size_bytes: float) -> float:
        """The fitted time of a size."""
        return self.latency_ns + size_bytes / self.bandwidth_gbs


def compare(test: NcclTest, simulate: Callable[[int], float]) -> tuple[SizeComparison, ...]:
    """Each row compared with `simulate(size_bytes)`, in ns, called once per size."""
    factor = busbw_factor(test.pattern, test.ranks)
    times = {size: simulate(size) for size in dict.fromkeys(row.size_bytes for row in test.rows)}
    return tuple(
        SizeComparison(
            row.size_bytes,
            row.timing.busbw_gbs,
            row.size_bytes / times[row.size_bytes] * factor,
            row.timing.time_us * 1000 / times[row.size_bytes],
        )
        for row in test.rows
    )


def fit_alpha_beta(sizes_bytes: Sequence[float], times_ns: Sequence[float]) -> AlphaBeta:
    """The latency and bandwidth, both >= 0, with the least squares of relative errors, so that
    small sizes count as much as large ones.

    Raises InputError for fewer than two sizes, times that are not above 0, or times that do not
    grow with size, which say nothing about a bandwidth.
    """
    sizes, times = np.asarray(sizes_bytes, float), np.asarray(times_ns, float)
    if len(sizes) != len(times) or len(np.unique(sizes)) < 2:
        raise InputError(
            f"a latency and a bandwidth need the times of two sizes or more, not {len(sizes)}",
            hint="measure sizes that are far apart, for example -b 8 -e 1G -f 2",
        )
    if not np.all(np.isfinite(times) & (times > 0) & (sizes >= 0)):
        raise InputError("times must be above 0, and sizes 0 or more", hint="leave such rows out")
    scale = sizes.max()
    parts = np.column_stack((1 / times, sizes / scale / times))
    widths = np.linalg.norm(parts, axis=0)
    coefficients, _ = nnls(parts / widths, np.ones(len(times)))
    latency, per_scale = coefficients / widths
    if per_scale <= 0:
        raise InputError(
            "the times do not grow with size, so no bandwidth can be derived",
            hint="add larger sizes",
        )
    errors = np.abs(parts @ (latency, per_scale) - 1)
    return AlphaBeta(float(latency), float(scale / per_scale), float(errors.max()))
