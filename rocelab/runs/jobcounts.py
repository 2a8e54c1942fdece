"""What a job's endpoints and the lab's devices counted: by rank, flow, send and link.

The functions compute the parts of a `JobReport` from a `JobResult`, the agents' records and
`DeviceCounts`. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from rocelab.agent.rc.requester import GAP_NS
from rocelab.observe.devices import DeviceCounts
from rocelab.planning.fabric import Direction, Fabric
from rocelab.results.job import (
    FlowFigures,
    FlowOutage,
    HostStall,
    LinkFigures,
    RankFigures,
    RoundTrips,
    StepRecords,
    Transport,
)
from rocelab.runs.jobfigures import times
from rocelab.traffic.jobresult import JobResult, QueuePairRecord
from rocelab.traffic.result import AgentRecord

Paths = Mapping[int, tuple[str, ...]]
"""The links that what an end of a queue pair sends crosses, by its number."""

USUAL_TRIPS = 2
"""A flow is not out yet after so many of the round trips that 1% exceed."""


def ranks(job: JobResult) -> tuple[RankFigures, ...]:
    """Each rank's waiting and bytes."""
    spec, dilation = job.plan.job, job.plan.dilation
    waited = {rank.rank: rank.waited_ns[spec.warmup_iterations :] for rank in job.ranks}
    counts: dict[int, Counter[str]] = defaultdict(Counter)
    for pair in job.queue_pairs:
        counts[pair.end.rank].update(
            posted=pair.requester.posted_bytes,
            acked=pair.requester.acked_bytes,
            delivered=pair.responder.bytes,
        )
    for one in job.connections:
        counts[one.path.rank].update(posted=one.posted_bytes, acked=one.acked_bytes)
        counts[one.path.peer].update(delivered=one.delivered_bytes)
    measured = bool(len(job.iteration_ns))
    return tuple(
        RankFigures(
            rank=rank,
            nic=str(place),
            waiting=times(float(np.median(waited[rank])), dilation) if measured else None,
            posted_bytes=counts[rank]["posted"],
            acked_bytes=counts[rank]["acked"],
            delivered_bytes=counts[rank]["delivered"],
        )
        for rank, place in enumerate(job.plan.places)
    )


def transport(job: JobResult, agents: Iterable[AgentRecord]) -> Transport | None:
    """The sums of all queue pairs' counters; None of a job of TCP, which has none."""
    if job.plan.job.transport.is_tcp:
        return None
    agents = tuple(agents)
    requesters = [pair.requester for pair in job.queue_pairs]
    responders = [pair.responder for pair in job.queue_pairs]
    any_order = job.plan.job.transport.out_of_order
    reordered, taken = (
        sum(end.reordered for end in responders),
        sum(end.packets for end in responders),
    )
    return Transport(
        queue_pairs=len(job.queue_pairs) // 2,
        data_packets=sum(end.packets for end in requesters),
        retransmitted=sum(end.retransmitted for end in requesters),
        posted_bytes=job.posted_bytes,
        acked_bytes=job.acked_bytes,
        delivered_bytes=job.delivered_bytes,
        timeouts=sum(end.timeouts for end in requesters),
        naks_sent=sum(end.naks for end in responders),
        naks_received=sum(end.naks for end in requesters),
        out_of_order=sum(end.out_of_order for end in responders),
        duplicates=sum(end.duplicates for end in responders),
        ce=sum(end.ce for end in responders),
        cnps_sent=sum(end.cnps for end in responders),
        cnps_received=sum(pair.cnps_received for pair in job.queue_pairs),
        refused=sum(port.refused for port in job.ports),
        icrc_errors=sum(agent.icrc_errors for agent in agents),
        unexpected=sum(agent.unexpected for agent in agents),
        port_moves=sum(pair.port_moves for pair in job.queue_pairs),
        reordered=reordered if any_order else None,
        reordered_share=reordered / taken if any_order and taken else None,
        reorder_extent=max(end.reorder_extent for end in responders) if any_order else None,
    )


def round_trips(job: JobResult) -> RoundTrips | None:
    """Round trips of data, None without any."""
    data = [pair.rtt_ns for pair in job.queue_pairs if not pair.end.control and len(pair.rtt_ns)]
    if not data:
        return None
    every = np.concatenate(data)
    p50, p99 = np.percentile(every, (50, 99))
    dilation = job.plan.dilation
    return RoundTrips(
        samples=len(every),
        p50=times(float(p50), dilation),
        p99=times(float(p99), dilation),
        maximum=times(float(every.max()), dilation),
    )


def flows(job: JobResult, paths: Paths) -> tuple[FlowFigures, ...]:
    """The figures of each queue pair that sent data."""
    ends = {pair.end.number: pair for pair in job.queue_pairs}
    figures = []
    for pair in _sending(job):
        end, sends = pair.end, pair.requester
        far = ends[end.remote]
        takes = far.responder
        known = len(pair.rtt_ns) > 0
        p50, p99 = np.percentile(pair.rtt_ns, (50, 99)).tolist() if known else (None, None)
        figures.append(
            FlowFigures(
                rank=end.rank,
                peer=end.peer,
                sport=end.sport,
                dest_qp=end.remote,
                port=end.port,
                acks_sport=far.end.sport,
                acks_qp=end.number,
                acks_port=far.end.port,
                bytes=sends.posted_bytes,
                packets=sends.packets,
                messages=takes.messages,
                retransmitted=sends.retransmitted,
                naks=sends.naks,
                timeouts=sends.timeouts,
                cnps=pair.cnps_received,
                out_of_order=takes.out_of_order,
                duplicates=takes.duplicates,
                ce=takes.ce,
                rtt_p50_ns=p50,
                rtt_p99_ns=p99,
                links=paths.get(end.number, ()),
            )
        )
    return tuple(figures)


def _sending(job: JobResult) -> list[QueuePairRecord]:
    """The ends of queue pairs that sent data, in the order of `flows`."""
    return [pair for pair in job.queue_pairs if not pair.end.control and pair.requester.packets]


def outages(job: JobResult, trips: RoundTrips | None, late_ns: int) -> tuple[FlowOutage, ...]:
    """The flows that lost packets or waited for an acknowledgement for longer than an undisturbed
    one. late_ns: how late a packet left at most."""
    usual_ns = 0 if trips is None else USUAL_TRIPS * round(trips.p99.lab_ns)
    resolution_ns = late_ns + max(GAP_NS, usual_ns)
    felt = [
        FlowOutage(place, gap.began_ns, gap.ended_ns, resolution_ns, gap.retransmitted)
        for place, pair in enumerate(_sending(job))
        for gap in pair.gaps
        if gap.has_retransmissions
        or gap.ended_ns is None
        or gap.ended_ns - gap.began_ns > resolution_ns
    ]
    return tuple(sorted(felt, key=lambda outage: (outage.began_ns, outage.flow)))


def steps(job: JobResult) -> StepRecords | None:
    """The recorded times of sends; None without any, or if the job failed."""
    record = job.steps
    if record is None or job.errors:
        return None
    return StepRecords(
        first=record.first,
        began_ns=_table(np.stack([rank.began_ns for rank in job.ranks], axis=1)[record.first :]),
        ended_ns=_table(np.stack([rank.ended_ns for rank in job.ranks], axis=1)[record.first :]),
        posted_ns=_table(record.posted_ns),
        arrived_ns=_table(record.arrived_ns),
        acked_ns=_table(record.acked_ns),
    )


def _table(values: npt.NDArray[np.int64]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in values.tolist())


def stalls(job: JobResult) -> tuple[HostStall, ...]:
    """When servers stood still, in order of time."""
    records = [
        HostStall(record.server, began, length)
        for record in job.stalls
        for began, length in zip(record.began_ns.tolist(), record.length_ns.tolist(), strict=True)
    ]
    return tuple(sorted(records, key=lambda stall: stall.began_ns))


def links(fabric: Fabric, counts: DeviceCounts) -> tuple[LinkFigures, ...]:
    """The load of every link in both directions, in build order; of servers' links those used."""
    totals: Counter[tuple[str, Direction]] = Counter()
    for link in fabric.directed_links:
        totals[link.tier, link.direction] += counts.roce[link]
    figures = []
    for link in fabric.directed_links:
        packets = counts.roce[link]
        if packets or link.is_between_switches:
            total = totals[link.tier, link.direction]
            figures.append(
                LinkFigures(
                    *(link.name, link.tier, link.direction, link.sender),
                    *(packets, counts.sent_bytes[link]),
                    share=packets / total if total else None,
                )
            )
    return tuple(figures)


def lost_share(job: JobResult) -> float:
    """The share of its sending time in which the worst port idled only because of this machine."""
    return max((port.lost_ns / port.busy_ns for port in job.ports if port.busy_ns), default=0.0)
