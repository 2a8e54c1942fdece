"""The flows of a simulation whose transfers took longest, with their paths, for its document."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rocelab.base.arrays import Floats
from rocelab.results.simulation import FlowOutcome
from rocelab.sim.engine.completion import NS, Completion

if TYPE_CHECKING:
    from rocelab.sim.engine.program import Outcome
    from rocelab.sim.simulate import Simulation

MOST_FLOWS = 500
MOST_LINKS = 20_000
"""Limits the paths of all flows together: a flow that switches divide can have hundreds."""


def slowest_flows(
    simulation: Simulation, outcome: Outcome, over_s: Floats, times: Completion
) -> tuple[FlowOutcome, ...]:
    """The slowest first, of equally slow ones the largest. over_s: when each transfer was over, X;
    times: of each transfer."""
    network, compiled, program = simulation.network, simulation.compiled, simulation.program
    flows, paths = simulation.flows, simulation.whole_paths
    longest_s = np.full(len(flows), -np.inf)
    np.maximum.at(longest_s, program.flow, times.took_s)
    payload_bytes = np.bincount(program.flow, compiled.payload_bytes, len(flows))
    (slow,) = np.nonzero(longest_s >= _nth_highest(longest_s, MOST_FLOWS))
    order = slow[np.lexsort((-payload_bytes[slow], -longest_s[slow]))][:MOST_FLOWS]
    links = np.cumsum(np.diff(paths.start)[order])
    order = order[(links <= MOST_LINKS) & (longest_s[order] > -np.inf)]
    is_listed = np.zeros(len(flows), np.bool_)
    is_listed[order] = True
    (sent,) = np.nonzero(is_listed[program.flow])
    sent = sent[np.argsort(program.flow[sent], kind="stable")]
    task = np.searchsorted(program.first_transfer, sent, side="right") - 1
    slowdown, rows = times.slowdown, []
    for flow in order.tolist():
        begin, end = np.searchsorted(program.flow[sent], (flow, flow + 1))
        transfers, of_task = sent[begin:end], task[begin:end]
        job = compiled.job[of_task[0]]
        worst = transfers[times.took_s[transfers].argmax()]
        sends = paths.sends[paths.start[flow] : paths.start[flow + 1]]
        rows.append(
            FlowOutcome(
                job=simulation.jobs[job].name,
                source=network.nic_name(flows.source[flow]),
                destination=network.nic_name(flows.destination[flow]),
                source_port=int(flows.sport[flow]),
                dest_qp=int(flows.dest_qp[flow]),
                payload_bytes=int(payload_bytes[flow]),
                transfers=len(transfers),
                start_ns=_known(outcome.start_s[of_task].min() * NS),
                over_ns=_known(over_s[transfers].max() * NS),
                longest_ns=_known(times.took_s[worst] * NS),
                slowdown=None if simulation.is_merged[job] else _known(slowdown[worst]),
                links=tuple(dict.fromkeys(map(simulation.link_name, sends.tolist()))),
            )
        )
    return tuple(rows)


def _nth_highest(values: Floats, number: int) -> float:
    """The least of so many highest values, -inf if there are fewer."""
    if len(values) <= number:
        return -np.inf
    return float(np.partition(values, -number)[-number])


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
