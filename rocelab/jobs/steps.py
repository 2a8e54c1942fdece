"""Builds a `Workload` step by step, and computes the least time that one can take.

A completion time is compared with that least time, the roofline over NICs of a given rate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from rocelab.base.arrays import Bools, Floats
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.workload import Dimension, Sends, Step, StepTiming, Workload


class Steps:
    """A growing list of steps; `add` returns the number of each."""

    def __init__(self) -> None:
        self._steps: list[Step] = []

    def add(
        self,
        name: str,
        after: Iterable[int | None] = (),
        compute_s: float = 0.0,
        sends: Sends | None = None,
        dimension: Dimension | None = None,
        inside: Mapping[Dimension, float] | None = None,
    ) -> int:
        """Add a step after others (None: nothing to wait for). inside: seconds of compute_s that
        wait within servers."""
        waits = tuple(dict.fromkeys(number for number in after if number is not None))
        within = tuple((inside or {}).items())
        self._steps.append(Step(name, waits, compute_s, sends, dimension=dimension, inside=within))
        return len(self._steps) - 1

    def workload(self, ranks: int, iterations: int) -> Workload:
        """All added steps, repeated `iterations` times, each iteration after the one before."""
        count = len(self._steps)
        awaited = {earlier for step in self._steps for earlier in step.after}
        last = [number for number in range(count) if number not in awaited]
        steps: list[Step] = []
        for iteration in range(iterations):
            first = iteration * count
            before = tuple(first - count + number for number in last) if iteration else ()
            steps += [
                replace(
                    step,
                    after=tuple(first + number for number in step.after) or before,
                    iteration=iteration,
                )
                for step in self._steps
            ]
        return Workload(ranks, tuple(steps))


def alone_s(
    sends: Sends | None, ranks: int, nic_bps: Floats | float, hosts: RankHosts | None = None
) -> float:
    """Seconds that sends take if only NICs of `nic_bps` each way (of all ranks, or of each) limit
    them, and the fabrics of hosts: the time of the rank that sends or receives longest, in
    payload."""
    if sends is None:
        return 0.0
    if hosts is not None and hosts.local is not None:
        local = hosts.same_domain(sends.source, sends.destination)
        over_network = _longest_s(sends, ranks, ~local, nic_bps)
        return max(over_network, _longest_s(sends, ranks, local, hosts.local.bandwidth_bps))
    # A list of flows has very many steps of one send.
    if len(sends.source) == 1:
        ends = [sends.source.item(0), sends.destination.item(0)]
        rate_bps = nic_bps if isinstance(nic_bps, float) else float(nic_bps[ends].min())
        return sends.size_bytes.item(0) * 8 / rate_bps
    return _longest_s(sends, ranks, np.ones(len(sends.source), np.bool_), nic_bps)


def _longest_s(sends: Sends, ranks: int, chosen: Bools, bps: Floats | float) -> float:
    """The time of the rank that sends or receives some sends longest at this rate."""
    ends, sizes = (sends.source[chosen], sends.destination[chosen]), sends.size_bytes[chosen]
    return max(float((np.bincount(end, sizes, ranks) * 8 / bps).max()) for end in ends)


def step_ends(
    workload: Workload, nic_bps: Floats | float, hosts: RankHosts | None = None
) -> list[float]:
    """When each step is over, in seconds, if it takes its compute time and its sends go alone on
    NICs of `nic_bps` and on the fabrics of hosts, and nothing waits for the clock."""
    ends: list[float] = []
    for step in workload.steps:
        start = max(ends[earlier] for earlier in step.after) if step.after else 0.0
        compute_s = 0.0 if step.counts is StepTiming.BEFORE else step.compute_s
        ends.append(start + compute_s + alone_s(step.sends, workload.ranks, nic_bps, hosts))
    return ends


def roofline_s(
    workload: Workload, nic_bps: Floats | float, hosts: RankHosts | None = None
) -> float:
    """The longest chain of steps, each with its compute time and alone on NICs of `nic_bps`, and on
    the fabrics of hosts.

    No network can be faster: headers, latency and shared links only add to it.
    """
    return max(step_ends(workload, nic_bps, hosts), default=0.0)


def shortest_iteration_s(
    workload: Workload, nic_bps: Floats | float, hosts: RankHosts | None = None
) -> float:
    """The longest chain of the iteration whose own one is shortest, as `roofline_s` has it, where
    iterations differ."""
    lengths_s: dict[int, float] = {}
    ends_s: list[float] = []
    for step in workload.steps:
        waits = [at for at in step.after if workload.steps[at].iteration == step.iteration]
        begin_s = max((ends_s[at] for at in waits), default=0.0)
        compute_s = 0.0 if step.counts is StepTiming.BEFORE else step.compute_s
        end_s = begin_s + compute_s + alone_s(step.sends, workload.ranks, nic_bps, hosts)
        ends_s.append(end_s)
        if step.counts is StepTiming.WITHIN:
            lengths_s[step.iteration] = max(lengths_s.get(step.iteration, 0.0), end_s)
    return min(lengths_s.values(), default=0.0)
