"""The data of a simulation's page: its fabric, what failed, its flows and the loads of links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter

import numpy as np

from rocelab.base.wording import counted
from rocelab.planning.fabric import Direction, Fabric
from rocelab.report.replay.recording import (
    FAULT,
    STAGE,
    Entry,
    RecordedFlow,
    RecordedJob,
    RecordedRun,
    Recording,
    all_of,
    loads_of,
    numbers_of,
    rate_over_time,
    recording_of,
)
from rocelab.results.engines import Engine
from rocelab.results.simulation import (
    FlowOutcome,
    RateOverTime,
    SimulatedEvent,
    SimulationReport,
    TierUse,
)

MOST_NODES = 2_500
"""The largest simulated fabric that is drawn whole: the page of `hpn-pod`, with 2,288 nodes, has
3.8 MB if flows are sprayed."""

MOST_NODES_OF_PART = 150
"""The drawn part of a larger fabric, where the slowest flows go: names can be read and paths told
apart."""


@dataclass(frozen=True, slots=True)
class SimulatedFlow(RecordedFlow):
    """A flow of the page, from its `FlowOutcome`."""

    job: str
    dest_qp: int
    payload_bytes: int
    transfers: int
    longest_ns: float | None
    slowdown: float | None
    over_ns: float | None


def recorded(report: SimulationReport) -> Recording | None:
    """The recording of a simulation. None where no time passed, of a fabric that has more addresses
    than a plan, or if no part of a large one is small enough."""
    end_ns = report.rate.time_ns[-1]
    if not end_ns:
        return None
    try:
        whole = report.fabric
    except ValueError:
        return None
    fabric, flows = whole, list(report.slowest)
    if len(whole.nodes) > MOST_NODES:
        fabric, flows = _part(whole, report.slowest)
        if not flows:
            return None
    run = RecordedRun(
        title="",
        dilation=1,
        begin_ns=0,
        end_ns=round(end_ns),
        events=sorted(
            chain.from_iterable(map(_failure, range(1, len(report.events) + 1), report.events)),
            key=itemgetter("t_ns"),
        ),
        loads=loads_of(fabric, _carried(whole, report.uses)),
        loads_are="bytes of the jobs, on links between switches",
        rates_are="all transfers on the wire"
        + (", mean" if report.method.engine is not Engine.FLUID else ""),
        flows_are=which_flows(report, len(flows)) + _which_part(fabric, whole),
        paths_are="its path while all links are up, or all its ways where switches divide it",
        flows=_simulated_flows(fabric, flows),
        jobs=[_rate_of(report.rate)],
    )
    return recording_of(fabric, [run])


def which_flows(report: SimulationReport, listed: int) -> str:
    """Which of a simulation's flows those are that are listed."""
    flows = report.method.flows
    some = f"The {listed:,} slowest of {counted(flows, 'flow')}"
    which = some if listed < flows else all_of(flows)
    return f"{which}; a flow is what one end of a queue pair sends."


def _part(fabric: Fabric, flows: Sequence[FlowOutcome]) -> tuple[Fabric, list[FlowOutcome]]:
    """The part of a fabric that is drawn, and the first of these flows, which go through it."""
    nodes: set[str] = set()
    inside = 0
    for flow in flows:
        links = (fabric.link_by_name[name] for name in flow.links)
        ends = {port.node for link in links for port in (link.a, link.b)}
        if len(nodes | ends) > MOST_NODES_OF_PART:
            break
        nodes |= ends
        inside += 1
    part = replace(
        fabric,
        nodes=tuple(node for node in fabric.nodes if node.name in nodes),
        links=tuple(link for link in fabric.links if {link.a.node, link.b.node} <= nodes),
    )
    return part, list(flows[:inside]) if nodes else []


def _which_part(part: Fabric, whole: Fabric) -> str:
    if part is whole:
        return ""
    drawn, nodes = len(part.nodes), len(whole.nodes)
    return (
        f" The picture is of the {drawn:,} nodes on their paths, of {nodes:,} that the fabric has."
    )


def _failure(number: int, event: SimulatedEvent) -> Iterator[Entry]:
    kind, _, subject = event.what.partition(" ")
    change = {
        "kind": FAULT,
        "event": number,
        "fault": kind,
        "subject": subject,
        "links": event.links,
        "nodes": (),
        "dark": False,
    }
    yield {"t_ns": event.start_ns, "begins": True, **change}
    if event.routed_ns is not None:
        text = "is avoided where another way is left"
        yield {"t_ns": event.routed_ns, "kind": STAGE, "node": subject, "text": text}
    if event.end_ns is not None:
        yield {"t_ns": event.end_ns, "begins": False, **change}


def _simulated_flows(fabric: Fabric, flows: Sequence[FlowOutcome]) -> list[SimulatedFlow]:
    numbers = numbers_of(fabric)
    return [
        SimulatedFlow(
            name=f"f{number}",
            source=flow.source,
            destination=flow.destination,
            sport=flow.source_port,
            path=tuple(numbers[link] for link in flow.links),
            job=flow.job,
            dest_qp=flow.dest_qp,
            payload_bytes=flow.payload_bytes,
            transfers=flow.transfers,
            longest_ns=flow.longest_ns,
            slowdown=flow.slowdown,
            over_ns=flow.over_ns,
        )
        for number, flow in enumerate(flows, 1)
    ]


def _carried(fabric: Fabric, uses: Sequence[TierUse]) -> Mapping[tuple[str, Direction], int]:
    """The bytes of each link between switches and direction."""
    names: dict[str, list[str]] = {}
    for link in fabric.links:
        names.setdefault(link.tier, []).append(link.name)
    return {
        (name, use.direction): size
        for use in uses
        for name, size in zip(names[use.tier], use.bytes, strict=True)
    }


def _rate_of(rate: RateOverTime) -> RecordedJob:
    return rate_over_time("all jobs", np.array(rate.time_ns), np.array(rate.rate_bps[:-1]))
