"""Finds links that delayed a job because they were full, or slower than they should be.

A link is congested if a queue stood before it and other traffic crossed it besides the job's own;
it is slow if a queue stood and it never carried its rate. If a job's own flows fill a link, the
cause is its placement and hashing, and no fault: a note says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from rocelab.base.quantities import whole_share
from rocelab.base.wording import counted
from rocelab.diagnose.case import Case
from rocelab.diagnose.paths import suspects
from rocelab.jobs.performance import wire_overhead_bytes
from rocelab.planning.fabric import DirectedLink
from rocelab.results.diagnosis import Cause, CauseVerdict
from rocelab.results.job import FlowFigures, LinkFigures, QueueFigures
from rocelab.wire.headers import frame_overhead_bytes

FOREIGN = 0.1
"""The least share of other traffic in a link's bytes for a verdict of congestion."""

MARKED = 0.02
"""The least share of marked packets at a queue that counts as standing."""

DEEP_PACKETS = 8
"""Or the least mean depth on arrival, in full packets."""

CARRIED = 0.6
"""The least share of its rate that a link with a standing queue should reach."""

STRETCHED = 2.5
"""The least ratio, for a slow link, of round trips to the time that the bytes queued on their way
take at the links' rates."""

BINS = 200


@dataclass(frozen=True, slots=True)
class _FullLink:
    """A link with a standing queue before it."""

    link: DirectedLink
    queue: QueueFigures
    figures: LinkFigures
    flows: tuple[FlowFigures, ...]
    foreign: float
    """The share of its bytes not of this job."""
    reached: float
    """The share of its rate that the job's own sends reached over it."""
    stretch: float
    """The ratio of its flows' round trips to the time that the queues on their way explain."""


def full_links(
    case: Case, explained: Collection[DirectedLink]
) -> tuple[list[CauseVerdict], list[str]]:
    """Verdicts on links that were full or slow, and notes on those that the job itself filled, but
    for those whose queues are `explained` otherwise."""
    verdicts, notes = [], []
    for full in sorted(_standing(case), key=_standing_bytes, reverse=True):
        if full.link in explained:
            continue
        if full.foreign >= FOREIGN:
            verdicts.append(_verdict(case, full, Cause.CONGESTED_LINK))
        elif (
            full.reached < CARRIED
            and full.stretch >= STRETCHED
            and not _wait_elsewhere(case, full, explained)
        ):
            verdicts.append(_verdict(case, full, Cause.SLOW_LINK))
        elif _marked(full.queue) or _standing_bytes(full) >= case.fabric.spec.queues.ecn.kmin:
            notes.append(_note(full))
    return verdicts, notes


def _wait_elsewhere(case: Case, full: _FullLink, explained: Collection[DirectedLink]) -> bool:
    """Whether flows over a link also wait for ports whose queues are explained."""
    return any(
        link in explained
        for flow, path in zip(case.report.flows, case.paths or (), strict=True)
        if flow in full.flows
        for link in path.data
    )


def _standing_bytes(full: _FullLink) -> float:
    return full.queue.depth_mean_bytes or 0.0


def _standing(case: Case) -> Iterator[_FullLink]:
    figures = case.report.figures_by_link
    for link, flows in case.crossing.items():
        stood = [queue for queue in case.queues_at(link) if _has_standing_queue(case, queue)]
        if stood:
            queue = max(stood, key=lambda sample: sample.packets)
            carried = figures[link]
            foreign = 1 - min(1.0, _own_bytes(case, link, flows) / max(1, carried.bytes))
            reached = _reached(case, link, flows)
            yield _FullLink(link, queue, carried, flows, foreign, reached, _stretch(case, flows))


def _has_standing_queue(case: Case, queue: QueueFigures) -> bool:
    full_packet = case.job.transport.mtu + frame_overhead_bytes(case.fabric.family)
    deep = (queue.depth_mean_bytes or 0.0) >= DEEP_PACKETS * full_packet
    return deep or _marked(queue)


def _marked(queue: QueueFigures) -> bool:
    return queue.dropped_packets > 0 or queue.marked >= MARKED * max(1, queue.packets)


def _stretch(case: Case, flows: tuple[FlowFigures, ...]) -> float:
    """The median, over flows, of the round trip over the time that the bytes queued on its way
    need; 0 if unknown."""
    lengths = [
        flow.rtt_p50_ns / wait_ns
        for flow, path in zip(case.report.flows, case.paths or (), strict=True)
        if flow in flows
        and flow.rtt_p50_ns
        and (wait_ns := sum(_wait_ns(case, link) for link in path.data))
    ]
    return statistics.median(lengths) if lengths else 0.0


def _wait_ns(case: Case, link: DirectedLink) -> float:
    """The time to send the mean depth of the queue before a link, at its rate."""
    depth = max((queue.depth_mean_bytes or 0.0 for queue in case.queues_at(link)), default=0.0)
    return depth * 8e9 * case.report.clock.dilation / link.link.rate_bps


def _own_bytes(case: Case, link: DirectedLink, flows: tuple[FlowFigures, ...]) -> int:
    """The most bytes that the job sent on a link: all packets as if full, and its answers."""
    mtu = case.job.transport.mtu + frame_overhead_bytes(case.fabric.family)
    data_bytes = sum(flow.packets * mtu for flow in flows)
    answers = [
        flow
        for flow, path in zip(case.report.flows, case.paths or (), strict=True)
        if link in path.answers
    ]
    acks = sum(flow.packets // case.job.transport.ack_every + flow.messages for flow in answers)
    return data_bytes + 2 * frame_overhead_bytes(case.fabric.family) * acks


def _reached(case: Case, link: DirectedLink, flows: tuple[FlowFigures, ...]) -> float:
    """The share of a link's rate that the job's own sends used at their peak: the upper decile over
    the times with any send in progress, each send spread evenly over its time."""
    timing = case.timing
    begin, end = int(timing.posted.min()), int(timing.arrived.max())
    edges = np.linspace(begin, end, BINS + 1)
    load = np.zeros(BINS)
    mtu = case.job.transport.mtu
    wire = 1 + wire_overhead_bytes(case.fabric.family) / mtu
    shares = _shares(case, flows)
    for row in range(len(timing.posted)):
        for send in timing.schedule.sends:
            share = shares.get((send.source, send.destination))
            if share:
                low, high = timing.posted[row, send.id], timing.arrived[row, send.id]
                inside = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0, None)
                load += share * send.size_bytes * wire * inside / max(1, high - low)
    rates = load[load > 0] * 8e9 / (edges[1] - edges[0])
    return float(np.quantile(rates, 0.9) / (link.link.rate_bps / case.report.clock.dilation))


def _shares(case: Case, flows: tuple[FlowFigures, ...]) -> dict[tuple[int, int], float]:
    """The share of each rank pair's bytes that these flows carry."""
    shares: dict[tuple[int, int], float] = {}
    for flow in flows:
        pair = flow.rank, flow.peer
        whole = sum(case.report.flows[place].bytes for place in case.flows_of[pair])
        shares[pair] = shares.get(pair, 0.0) + flow.bytes / max(1, whole)
    return shares


def _verdict(case: Case, full: _FullLink, cause: Cause) -> CauseVerdict:
    excess, iterations = case.excess_of_flows(full.flows)
    queue, total = full.queue, full.figures.bytes
    evidence = [_queue_line(full)]
    if cause is Cause.CONGESTED_LINK:
        evidence.append(
            f"of {total / 1e6:,.1f} MB that crossed it {whole_share(full.foreign)} were not of "
            "this job"
        )
    else:
        rate = full.link.link.rate_bps / 1e9
        evidence.append(
            f"it carried {whole_share(full.reached)} of its {rate:,.0f} Gb/s while the job used it "
            f"most; round trips took {full.stretch:.1f} times as long as the queues explain at "
            "that rate"
        )
    crossing = sum(flow.ce for flow in full.flows)
    packets = sum(flow.packets for flow in full.flows)
    marked = whole_share(crossing / max(1, packets))
    evidence.append(
        f"the {len(full.flows)} queue pairs that cross it got {marked} of their packets with a "
        "mark (CE)"
    )
    if queue.dropped_packets:
        evidence.append(f"its queue dropped {counted(queue.dropped_packets, 'packet')}")
    return CauseVerdict(
        cause=cause,
        subject=str(full.link),
        server=None,
        ranks=tuple(sorted({flow.rank for flow in full.flows})),
        links=suspects([full.link]),
        excess=case.times(excess),
        iterations=iterations,
        evidence=tuple(evidence),
    )


def _queue_line(full: _FullLink) -> str:
    queue = full.queue
    mean = (
        "" if queue.depth_mean_bytes is None else f", {queue.depth_mean_bytes / 1e3:,.0f} kB deep"
    )
    marked = whole_share(queue.marked / max(1, queue.packets))
    return (
        f"a queue built up at {full.link.port}: it marked {marked} of {queue.packets:,} "
        f"packets{mean} on average"
    )


def _note(full: _FullLink) -> str:
    pairs = sorted({(flow.rank, flow.peer) for flow in full.flows})
    names = ", ".join(f"{rank} to {peer}" for rank, peer in pairs[:4])
    more = f" and {len(pairs) - 4} more" if len(pairs) > 4 else ""
    return (
        f"the job's own flows fill {full.link} ({full.link.direction}): ranks {names}{more}. "
        "Placement and hashing, not a fault"
    )
