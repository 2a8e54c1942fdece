"""How fast a job was: the figures of its report from the times and bytes of its endpoints.

The functions compute the parts of a `JobReport` from a `JobResult`; `rocelab.runs.jobcounts` those
that count. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocelab.base.quantities import BPS_PER_GBS
from rocelab.base.statistics import spread
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.performance import (
    PerformanceRow,
    jct_ratio,
    ran_ahead,
)
from rocelab.results.impact import FEWEST, ZERO_IMPACT, Impact, overhead_bounds
from rocelab.results.job import (
    Fairness,
    Goodput,
    Headline,
    RoundTrips,
    SenderGoodput,
    Times,
)
from rocelab.results.probes import Event
from rocelab.routes.balance import balance
from rocelab.traffic.jobresult import LOST_TIME_LIMIT, JobResult

STEPS = 200
"""The most points of goodput over time."""

SLICES = 10
"""Parts of the steady time of streams, each a measurement of its own."""

SECOND_NS = 10**9

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def times(lab_ns: float, dilation: float) -> Times:
    """A time of the lab's clock in both."""
    return Times(float(lab_ns), float(lab_ns) / dilation)


def bound(plan: JobPlan) -> Times | None:
    """The least time of an iteration (`JobPlan.least_ns`). None for streams."""
    if plan.least_ns is None:
        return None
    return Times(plan.least_ns * plan.dilation, plan.least_ns)


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
    if not isinstance(spec, JobSpec) or spec.size is None:
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
    # A byte per ns is a GB/s.
    total_gbs = np.diff(np.sum(acked, axis=0)) / np.diff(edges)
    dilation = job.plan.dilation
    fair = fairness(job)
    assert fair is not None
    sender_gbs = [rate_bps / BPS_PER_GBS for rate_bps in fair.rate_bps.values()]
    return (
        Headline(
            "goodput",
            "goodput of all senders",
            "GB/s",
            f"{SLICES} parts of the steady time",
            spread((total_gbs * dilation).tolist()),
            spread(total_gbs.tolist()),
        ),
        Headline(
            "sender_goodput",
            "goodput of a sender",
            "GB/s",
            "senders",
            spread(sender_gbs),
            spread([rate / dilation for rate in sender_gbs]),
        ),
    )


def _senders(plan: JobPlan) -> list[int]:
    return sorted({stream.source for stream in plan.streams})


def _steady_ns(plan: JobPlan) -> tuple[float, float]:
    """The second half of the time when all streams send, in the lab's clock."""
    last = plan.collective.starts[-1] * plan.dilation
    return (last + plan.duration_ns) / 2, float(plan.duration_ns)


def _acked(job: JobResult, rank: int, at_ns: Floats) -> Floats:
    """Payload of a rank that had left its NIC by each of these times according to ACKs, linear
    between samples."""
    sampled = job.sampled_ns[job.plan.places[rank].server]
    total = np.zeros(len(sampled), np.int64)
    for sender, acked in job.samples:
        if sender == rank:
            total += acked
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
    senders = sorted({rank for rank, _ in job.samples})
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


def resolution(job: JobResult, trips: RoundTrips | None, late_ns: int) -> Times | None:
    """The error bound of an iteration's time, None without iterations or round trips. late_ns: how
    late a packet left at most."""
    if trips is None or not len(job.iteration_ns):
        return None
    lost_ns = LOST_TIME_LIMIT * float(job.iteration_ns.max())
    return times(late_ns + trips.maximum.lab_ns + lost_ns, job.plan.dilation)


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
