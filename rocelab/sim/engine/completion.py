"""Flow completion times: how long transfers took, and over the least time each could take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Bools, Floats, Longs
from rocelab.results.simulation import Distribution, FlowTimes, SizeBin, SlowdownBySize
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Outcome, Program

NS = 1e9
BINS = 20
"""Parts of the distribution of sizes: those of HPCC's analysis (analysis/fct_analysis.py)."""

LEAST_OF_BIN = 100
"""Flows of a bin: with fewer the p99 is between the two highest."""


@dataclass(frozen=True, eq=False)
class Completion:
    """The time that each transfer took, X, inf if it was never over, and the least possible one."""

    took_s: Floats
    least_s: Floats

    @property
    def slowdown(self) -> Floats:
        return self.took_s / self.least_s

    def of(self, chosen: Bools) -> Completion:
        """That of some transfers."""
        return Completion(self.took_s[chosen], self.least_s[chosen])


def transfers_over_s(program: Program, outcome: Outcome) -> Floats:
    """When each transfer was over, X: its last byte sent, plus the latency of its task."""
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    last_s = np.full(program.tasks, -np.inf)
    np.maximum.at(last_s, task, outcome.finish_s)
    with np.errstate(invalid="ignore"):
        latency_s = outcome.end_s - last_s
    return outcome.finish_s + np.where(np.isfinite(latency_s), latency_s, 0.0)[task]


def completion(
    program: Program,
    paths: Paths,
    capacity_bps: Floats,
    latency_s: Floats,
    start_s: Floats,
    over_s: Floats,
) -> Completion:
    """The times of all transfers. latency_s: of each flow, F; start_s: of each task, T; over_s: of
    each transfer, X. A path that is divided is as fast as its fullest link lets the whole flow be;
    a transfer without a path takes no least time."""
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    share = 1.0 if paths.share is None else paths.share
    flow_bps = np.full(len(paths), np.inf)
    of_flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    np.minimum.at(flow_bps, of_flow, capacity_bps[paths.sends] / share)
    least_s = program.size_bits / flow_bps[program.flow]
    least_s += latency_s[program.flow]
    with np.errstate(invalid="ignore"):
        took_s = over_s - start_s[task]
    return Completion(np.where(np.isfinite(over_s), took_s, np.inf), least_s)


def flow_times(completion: Completion) -> FlowTimes | None:
    """The times of the transfers that were over."""
    done = np.isfinite(completion.took_s)
    if not done.any():
        return None
    took_ns, slowdown = completion.took_s[done] * NS, completion.slowdown[done]
    return FlowTimes(len(took_ns), _distribution(took_ns), _distribution(slowdown))


def slowdown_by_size(size_bytes: Longs, slowdown: Floats) -> SlowdownBySize | None:
    """The slowdown of flows with these sizes; inf for those that were never over."""
    done = np.isfinite(slowdown)
    size_bytes, slowdown = size_bytes[done], slowdown[done]
    if not len(size_bytes):
        return None
    parts = max(1, min(BINS, len(size_bytes) // LEAST_OF_BIN))
    ends = np.unique(
        np.quantile(size_bytes, np.arange(1, parts + 1) / parts, method="inverted_cdf")
    )
    number = np.searchsorted(ends, size_bytes)
    bins = []
    for index, end in enumerate(ends.tolist()):
        values = slowdown[number == index]
        p50, p95, p99 = np.quantile(values, [0.5, 0.95, 0.99]).tolist()
        bins.append(SizeBin(end, len(values), p50, p95, p99))
    return SlowdownBySize(
        tuple(bins), tuple(np.quantile(slowdown, np.linspace(0, 1, 101)).tolist())
    )


def _distribution(values: Floats) -> Distribution:
    p50, p99, maximum = np.quantile(values, [0.5, 0.99, 1.0]).tolist()
    return Distribution(float(values.mean()), p50, p99, maximum)
