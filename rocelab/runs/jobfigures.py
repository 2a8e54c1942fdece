"""The figures of a job's report, from what its endpoints and the lab's devices counted.

The functions compute the parts of a `JobReport` from a `JobResult`, the agents' records and
`DeviceCounts`. Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rocelab.agent.nic import WIRE_OVERHEAD_BYTES
from rocelab.base.statistics import spread
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.performance import (
    FRAME_OVERHEAD_BYTES,
    PerformanceRow,
    jct_ratio,
    ran_ahead,
    roofline_ns,
)
from rocelab.observe.devices import DeviceCounts
from rocelab.planning.fabric import Direction, Fabric
from rocelab.results.impact import FEWEST, ZERO_IMPACT, Impact, overhead_bounds
from rocelab.results.job import (
    Fairness,
    FlowFigures,
    Goodput,
    Headline,
    HostStall,
    LinkFigures,
    RankFigures,
    RoundTrips,
    SenderGoodput,
    StepRecords,
    Times,
    Transport,
)
from rocelab.results.probes import Event
from rocelab.routes.balance import balance
from rocelab.traffic.jobresult import LOST_TIME_LIMIT, JobResult
from rocelab.traffic.result import AgentRecord

STEPS = 200
"""The most points of goodput over time."""

SLICES = 10
"""Parts of the steady time of streams, each a measurement of its own."""

SECOND_NS = 10**9

Paths = Mapping[int, tuple[str, ...]]
"""The links that what an end of a queue pair sends crosses, by its number."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def times(lab_ns: float, dilation: float) -> Times:
    """A time of the lab's clock in both."""
    return Times(float(lab_ns), float(lab_ns) / dilation)


def bound(plan: JobPlan) -> Times | None:
    """The least time of an iteration on the modelled network, with Ethernet's preamble, FCS and
    gap, which the lab's links count as well. None for streams."""
    if plan.schedule is None:
        return None
    least_ns = roofline_ns(
        plan.schedule,
        max(plan.nic_rate_bps(rank) for rank in range(plan.job.ranks)),
        mtu_bytes=plan.job.transport.mtu,
        overhead_bytes=FRAME_OVERHEAD_BYTES + WIRE_OVERHEAD_BYTES,
    )
    return Times(least_ns * plan.dilation, least_ns)


def completion(job: JobResult) -> Times | None:
    """The time from the start of the first measured iteration to the end of the last, with
    pauses."""
    if not len(job.iteration_ns):
        return None
    first = job.plan.job.warmup_iterations
    began = min(int(rank.began_ns[first]) for rank in job.ranks)
    ended = max(int(rank.ended_ns[-1]) for rank in job.ranks)
    return times(ended - began, job.plan.dilation)


def headlines(job: JobResult) -> tuple[Headline, ...]:
    """The headline figures; none if the job failed."""
    if job.errors:
        return ()
    if job.plan.schedule is None:
        return _stream_headlines(job)
    return _collective_headlines(job)


def rows(job: JobResult) -> list[PerformanceRow]:
    """Each measured iteration as a row of nccl-tests' table, on the modelled clock."""
    spec = job.plan.job
    if spec.size is None:
        return []
    wrong = abs(job.posted_bytes - job.delivered_bytes)
    return [
        PerformanceRow(
            spec.pattern, spec.ranks, spec.size, lab_ns / job.plan.dilation, wrong_bytes=wrong
        )
        for lab_ns in job.iteration_ns.tolist()
    ]


def ratios(job: JobResult) -> list[float]:
    """The JCT ratio of each measured iteration; none without a bound."""
    least = bound(job.plan)
    return [] if least is None else [jct_ratio(row.time_ns, least.modelled_ns) for row in rows(job)]


def warnings(job: JobResult) -> tuple[str, ...]:
    """What a reader of the job's headlines has to know."""
    ahead = ran_ahead(ratios(job))
    return () if ahead is None or job.errors else (ahead,)


def _collective_headlines(job: JobResult) -> tuple[Headline, ...]:
    results, least = rows(job), bound(job.plan)
    if not results or least is None:
        return ()
    modelled_ns = [row.time_ns for row in results]
    lab = spread([row.time_ns * job.plan.dilation for row in results])
    of = "measured iterations"
    return (
        Headline("iteration_time", "time of an iteration", "ns", of, spread(modelled_ns), lab),
        _plain("algbw", "algbw", "GB/s", of, [row.algbw_gbs for row in results]),
        _plain("busbw", "busbw", "GB/s", of, [row.busbw_gbs for row in results]),
        _plain("jct_ratio", "time over its lower bound (JCT ratio)", "", of, ratios(job)),
    )


def _plain(name: str, title: str, unit: str, of: str, values: Sequence[float]) -> Headline:
    return Headline(name, title, unit, of, spread(values), None)


def _stream_headlines(job: JobResult) -> tuple[Headline, ...]:
    start_ns, end_ns = _steady_ns(job.plan)
    edges = np.linspace(start_ns, end_ns, SLICES + 1)
    acked = [_acked(job, rank, edges) for rank in _senders(job.plan)]
    total = np.diff(np.sum(acked, axis=0)) * 8 * SECOND_NS / np.diff(edges)
    dilation = job.plan.dilation
    fair = fairness(job)
    assert fair is not None
    return (
        Headline(
            "goodput",
            "payload of all senders",
            "bit/s",
            f"{SLICES} parts of the steady time",
            spread((total * dilation).tolist()),
            spread(total.tolist()),
        ),
        Headline(
            "sender_goodput",
            "payload of a sender",
            "bit/s",
            "senders",
            spread(list(fair.rate_bps.values())),
            spread([rate / dilation for rate in fair.rate_bps.values()]),
        ),
    )


def _senders(plan: JobPlan) -> list[int]:
    return sorted({stream.source for stream in plan.streams})


def _steady_ns(plan: JobPlan) -> tuple[float, float]:
    """The second half of the time when all streams send, in the lab's clock."""
    last = plan.job.starts[-1] * plan.dilation
    return (last + plan.duration_ns) / 2, float(plan.duration_ns)


def _acked(job: JobResult, rank: int, at_ns: Floats) -> Floats:
    """Payload of a rank that had left its NIC by each of these times according to ACKs, linear
    between samples."""
    sampled = job.sampled_ns[job.plan.places[rank].server]
    total = np.zeros(len(sampled), np.int64)
    for pair in job.queue_pairs:
        if pair.end.rank == rank and not pair.end.control:
            total += pair.acked_bytes
    if not len(sampled):
        return np.zeros(len(at_ns))
    times_ns = np.array([0, *sampled.tolist()], np.float64)
    gone = delivered(times_ns, np.array([0, *total.tolist()]), job.plan.lab_rate_bps(rank))
    return np.interp(at_ns, times_ns, gone)


def delivered(times_ns: Floats, acked: Ints, rate_bps: float) -> Floats:
    """The latest course by which acknowledged bytes left a NIC: bytes at each time, never faster
    than the NIC. ACKs come in bursts (one for many packets, several while a sender waits for its
    CPU); bytes on a link do not."""
    line = times_ns * (rate_bps / 8 / SECOND_NS)
    latest: Floats = line + np.maximum.accumulate((acked - line)[::-1])[::-1]
    # A mean above the rate is not hidden.
    latest[times_ns <= 0] = 0
    return latest


def goodput(job: JobResult) -> Goodput:
    """Goodput of each rank that sends, over the whole job."""
    ends = [int(sampled[-1]) for sampled in job.sampled_ns.values() if len(sampled)]
    samples = max((len(sampled) for sampled in job.sampled_ns.values()), default=0)
    senders = sorted({pair.end.rank for pair in job.queue_pairs if pair.requester.posted_bytes})
    if not ends or max(ends) <= 0:
        return Goodput(Times(0.0, 0.0), ())
    steps = max(1, min(STEPS, samples))
    edges = np.linspace(0.0, float(max(ends)), steps + 1)
    step_ns = float(edges[1])
    scale = 8 * SECOND_NS / step_ns * job.plan.dilation
    return Goodput(
        times(step_ns, job.plan.dilation),
        tuple(
            SenderGoodput(rank, tuple(np.round(np.diff(_acked(job, rank, edges)) * scale).tolist()))
            for rank in senders
        ),
    )


def fairness(job: JobResult) -> Fairness | None:
    """How evenly streams share, None for collectives and failed jobs."""
    plan = job.plan
    if plan.schedule is not None or job.errors:
        return None
    start_ns, end_ns = _steady_ns(plan)
    edges = np.array([start_ns, end_ns])
    scale = 8 * SECOND_NS / (end_ns - start_ns) * plan.dilation
    rates = {rank: float(np.diff(_acked(job, rank, edges))[0] * scale) for rank in _senders(plan)}
    slowest = min(rates.values())
    return Fairness(
        start=times(start_ns, plan.dilation),
        end=times(end_ns, plan.dilation),
        rate_bps=rates,
        jfi=balance(list(rates.values())).jfi,
        ratio=max(rates.values()) / slowest if slowest > 0 else None,
    )


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


def transport(job: JobResult, agents: Iterable[AgentRecord]) -> Transport:
    """The sums of all queue pairs' counters."""
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


def resolution(job: JobResult, trips: RoundTrips | None, late_ns: int) -> Times | None:
    """The error bound of an iteration's time, None without iterations or round trips. late_ns: how
    late a packet left at most."""
    if trips is None or not len(job.iteration_ns):
        return None
    lost_ns = LOST_TIME_LIMIT * float(job.iteration_ns.max())
    return times(late_ns + trips.maximum.lab_ns + lost_ns, job.plan.dilation)


def flows(job: JobResult, paths: Paths) -> tuple[FlowFigures, ...]:
    """The figures of each queue pair that sent data."""
    ends = {pair.end.number: pair for pair in job.queue_pairs}
    figures = []
    for pair in job.queue_pairs:
        if pair.end.control or not pair.requester.packets:
            continue
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


def impact_of(job: JobResult, events: tuple[Event, ...]) -> Impact | None:
    """The impact of the first event that begins a fault; `events` are in ns since the job's start.

    Where the event's instant is too uncertain to tell which of several iterations was hit, the
    slowest of them stands for all, and the bounds include each. None without such an event or with
    fewer than FEWEST iterations before it, and if the job failed or may have been over by then.
    """
    begun = [event for event in events if event.change == "begin"]
    if not begun or not job.ranks or job.errors:
        return None
    began_ns = np.min([rank.began_ns for rank in job.ranks], axis=0)
    ended_ns = np.max([rank.ended_ns for rank in job.ranks], axis=0)
    instants_ns = begun[0].t_ns, begun[0].t_ns + begun[0].took_ns
    first, last = np.searchsorted(ended_ns, instants_ns, side="right").tolist()
    took_ns: npt.NDArray[np.int64] = ended_ns - began_ns
    steady_ns: npt.NDArray[np.int64] = took_ns[job.plan.job.warmup_iterations : first]
    if last == len(ended_ns) or len(steady_ns) < FEWEST:
        return None
    hit = first + int(np.argmax(took_ns[first : last + 1]))
    failed_ns, median_ns = int(took_ns[hit]), float(np.median(steady_ns))
    p99_ns = float(np.percentile(steady_ns, 99))
    low, _ = overhead_bounds(int(np.min(took_ns[first : last + 1])), steady_ns)
    _, high = overhead_bounds(failed_ns, steady_ns)
    return Impact(
        iteration=hit,
        failed_ns=failed_ns,
        steady=len(steady_ns),
        steady_ns=median_ns,
        steady_p99_ns=p99_ns,
        overhead=failed_ns / median_ns - 1,
        zero_impact=True if high <= ZERO_IMPACT else False if low > ZERO_IMPACT else None,
        overhead_low=low,
        overhead_high=high,
    )
