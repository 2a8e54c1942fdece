"""What tracing costs: the same carrier loss with and without it, alternating, on one lab.

    sudo .venv/bin/python -m bench.tracing zone-small 16 rtsw1:ctsw2

Takes a lab, the number of repeats and a link. Prints full convergence and the last FIB change, with
their spread.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from rocelab import Lab, RunningLab, TrafficResult
from rocelab.base import quantities
from rocelab.base.statistics import spread
from rocelab.jobs.flow import permutation
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.observe.stages.recorder import StageRecorder
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.results.convergence import (
    FlowSamples,
    MeasurementMethod,
    Window,
    aggregate_event,
    measure_flow,
    offered_rate_pps,
)
from rocelab.traffic.session import TrafficSession

MS = 10**6
FLOWS, RATE_PPS, PAYLOAD_BYTES = 32, 1000, 256
BEFORE_NS, DOWN_NS = 300 * MS, 1000 * MS
METHOD = MeasurementMethod(sampling_interval_ns=10 * MS, sustained_ns=200 * MS)


@dataclass(frozen=True, slots=True)
class Cost:
    """One carrier loss: Full Convergence Time (RFC 6412 section 3.6.1), None if no flow lost
    packets, and the last change of any FIB, both in ns after it."""

    full_convergence_ns: int | None
    last_change_ns: int


def measure_costs(lab: RunningLab, repeats: int, link: str) -> dict[bool, tuple[Cost, ...]]:
    """`repeats` carrier losses without (False) and with (True) tracing, alternating.

    A pair of runs is left out if the machine did not carry the traffic of one, so there may be
    fewer. The lab must be up. Raises ExpectationError if it does not converge again.
    """
    costs: dict[bool, list[Cost]] = {False: [], True: []}
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as timeline,
    ):
        for _ in range(repeats):
            pair = {traced: _measure(lab, timeline, link, traced=traced) for traced in costs}
            valid = {traced: cost for traced, cost in pair.items() if cost is not None}
            if len(valid) == len(pair):
                for traced, cost in valid.items():
                    costs[traced].append(cost)
        timeline.wait_until_whole(convergence_timeout_s(lab.fabric))
    return {traced: tuple(values) for traced, values in costs.items()}


def _measure(lab: RunningLab, timeline: FibTimeline, link: str, *, traced: bool) -> Cost | None:
    """The cost of one carrier loss, None if the traffic was not as planned, so that its losses say
    nothing."""
    flows = permutation(lab.fabric, FLOWS, RATE_PPS, PAYLOAD_BYTES, 1)
    timeline.wait_until_whole(convergence_timeout_s(lab.fabric))
    with ExitStack() as stack:
        if traced:
            stack.enter_context(StageRecorder(lab))
        session = stack.enter_context(
            TrafficSession(lab.fabric, lambda name: lab.node(name).netns, flows)
        )
        _sleep_until(session.start() + BEFORE_NS)
        event_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
        try:
            lab.link(link).down()
            _sleep_until(event_ns + DOWN_NS)
        finally:
            end_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            lab.link(link).up()
        traffic = session.stop()
    if traffic.problems:
        return None
    changes = timeline.changes(event_ns, end_ns)
    return Cost(
        _full_convergence_ns(traffic, Window(event_ns, end_ns)),
        max((change.t_ns for change in changes), default=event_ns) - event_ns,
    )


def _sleep_until(instant_ns: int) -> None:
    time.sleep(max(0, instant_ns - time.clock_gettime_ns(time.CLOCK_REALTIME)) / 10**9)


def _full_convergence_ns(traffic: TrafficResult, window: Window) -> int | None:
    flows = [
        measure_flow(
            FlowSamples(one.sent_seq, one.sent_ns, one.received_seq, one.receive_ns),
            [window],
            offered_rate_pps(one.sent_ns),
            METHOD,
        )
        for one in traffic.flows
    ]
    return aggregate_event(flows, 0).full_convergence_ns


def costs_table(costs: Mapping[bool, Sequence[Cost]]) -> Table:
    """Median, smallest and largest of both times, without and with tracing."""
    table = Table("", "tracing", "median", "min", "max", "n")
    times = {
        "full convergence": lambda cost: cost.full_convergence_ns,
        "last FIB change": lambda cost: cost.last_change_ns,
    }
    for name, time_of in times.items():
        for traced, runs in costs.items():
            known = [float(ns) for ns in map(time_of, runs) if ns is not None]
            if known:
                values = spread(known)
                cells = [
                    quantities.duration(ns)
                    for ns in (values.median, values.minimum, values.maximum)
                ]
                table.add_row(name, "on" if traced else "off", *cells, str(len(known)))
    return table


def main(arguments: Sequence[str]) -> None:
    """Bring the lab up, measure, take it down and print the table."""
    name, repeats, link = arguments
    with Lab.planned(name).brought_up() as lab:
        costs = measure_costs(lab, int(repeats), link)
    Console().print(costs_table(costs))


if __name__ == "__main__":
    main(sys.argv[1:])
