"""Flow completion times: how long transfers took, and over the least time each could take."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Bools, Floats
from rocelab.results.flowtimes import FlowTimes, times_of_flows
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Outcome, Program

NS = 1e9


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
    return times_of_flows(completion.took_s[done] * NS, completion.slowdown[done])
