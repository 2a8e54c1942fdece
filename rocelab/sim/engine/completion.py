"""Flow completion times: how long transfers took, and over the least time each could take."""

from __future__ import annotations

import numpy as np

from rocelab.arrays import Floats
from rocelab.results.simulation import Distribution, FlowTimes
from rocelab.sim.engine.program import Program
from rocelab.sim.fabric.flows import Paths
from rocelab.sim.fabric.paths import links_on_path

NS = 1e9


def flow_times(
    program: Program,
    paths: Paths,
    capacity_bps: Floats,
    hop_latency_s: float,
    start_s: Floats,
    over_s: Floats,
) -> FlowTimes | None:
    """Those of the transfers that were over. start_s: of each task, T; over_s: of each transfer,
    X. A path that is divided is as fast as its fullest link lets the whole flow be."""
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    (done,) = np.nonzero(np.isfinite(over_s))
    if not len(done):
        return None
    share = 1.0 if paths.share is None else paths.share
    flow_bps = np.full(len(paths), np.inf)
    of_flow = np.repeat(np.arange(len(paths)), np.diff(paths.start))
    np.minimum.at(flow_bps, of_flow, capacity_bps[paths.sends] / share)
    flow = program.flow[done]
    least_s = program.size_bits[done] / flow_bps[flow]
    least_s += links_on_path(paths)[flow] * hop_latency_s
    took_s = over_s[done] - start_s[task[done]]
    return FlowTimes(len(done), _distribution(took_s * NS), _distribution(took_s / least_s))


def _distribution(values: Floats) -> Distribution:
    p50, p99, maximum = np.quantile(values, [0.5, 0.99, 1.0]).tolist()
    return Distribution(float(values.mean()), p50, p99, maximum)
