"""Judges how well the machine carried a faulted run, and whether its convergence times are valid.

Adds a `Fidelity` to a repeat, and a problem if a sender stalled just as an outage of its flow began
or ended, which shows only in the packets around it. A stall in the middle of an outage changes
nothing and is no reason for rejection: the longer an outage, the likelier a stall.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from rocelab.base import quantities
from rocelab.results.convergence import FlowSamples
from rocelab.results.probes import Fidelity, Flow, ProbeRun, Timeline
from rocelab.traffic.result import TrafficResult

STALL_LIMIT_NS = 20_000_000
"""The most that a stalled sender may add to a convergence time."""


def judged(
    repeat: ProbeRun,
    samples: Mapping[Flow, FlowSamples],
    timeline: Timeline,
    traffic: TrafficResult,
    stolen_s: float,
) -> ProbeRun:
    """`repeat` with its fidelity; `samples` are on the clock of `timeline`."""
    stall_ns = longest_stall_ns(repeat, samples, timeline.zero_ns)
    fidelity = Fidelity(
        lag_p99_ns=max(flow.lag_p99_ns for flow in traffic.flows),
        lag_max_ns=max(flow.lag_max_ns for flow in traffic.flows),
        stall_ns=stall_ns,
        agents_cpu_s=traffic.cpu_s,
        stolen_s=stolen_s,
    )
    problems = repeat.problems
    # Without a stall it is the time between packets.
    limit_ns = STALL_LIMIT_NS + max(float(np.median(np.diff(s.sent_ns))) for s in samples.values())
    if stall_ns is not None and stall_ns > limit_ns:
        problems += (
            f"not valid because a sender stalled for {quantities.duration(stall_ns)} just as an "
            f"outage may have begun or ended (the limit is {quantities.duration(limit_ns)})",
        )
    return replace(repeat, problems=problems, fidelity=fidelity)


def longest_stall_ns(
    repeat: ProbeRun, samples: Mapping[Flow, FlowSamples], zero_ns: int
) -> int | None:
    """The longest time between two packets of a flow in which an event's outage began or ended, or
    the event itself happened: a short outage may hide in it. None if no flow sent both before and
    after one. `zero_ns` is the first event's instant on the clock of `samples`."""
    gaps_ns = [
        outage.resolution_ns
        for record in repeat.flows
        for outage in record.measurement.outages
        if outage.event is not None
    ]
    for record in repeat.flows:
        sent_ns = samples[record.flow].sent_ns - zero_ns
        for event in repeat.events:
            after = int(np.searchsorted(sent_ns, event.event.t_ns))
            if 0 < after < len(sent_ns):
                gaps_ns.append(int(sent_ns[after] - sent_ns[after - 1]))
    return max(gaps_ns, default=None)


def stolen_cpu_s() -> float:
    """CPU seconds that a hypervisor has kept from this machine since boot (proc(5), "steal")."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")
