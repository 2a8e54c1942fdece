"""How long senders behind one port take to share it evenly: measured, and by the model of DCQCN.

From a job's report, samples of the port's queue and the round trip without a queue comes a frozen
`FairShares` with both times, rates and queues in the modelled network's clock, for a plot that
overlays them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocelab.jobs.dcqcn_model import Bottleneck, ModelRun, simulate, time_to_fairness
from rocelab.jobs.dcqcn_profiles import parameters
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.performance import wire_overhead_bytes
from rocelab.results.job import JobReport
from rocelab.results.shares import WINDOW_NS, FairShares, RateCourse, SettledMeans, SharedPort

TOLERANCE = 0.10
"""The share of the fair rate by which a sender may be off (BMWG AI fabric draft, DCQCN
convergence)."""

SETTLED = 0.5
"""The later part of the time after the last start, over which queue and use are averaged."""

Floats = npt.NDArray[np.float64]


def shared_port(plan: JobPlan, feedback_ns: int) -> SharedPort:
    """The switch port in front of the incast's receiver."""
    fabric, receiver = plan.fabric, plan.streams[0].destination
    link = plan.nic_link(receiver)
    queues = fabric.spec.queues
    packet = plan.job.transport.mtu + wire_overhead_bytes(fabric.family)
    return SharedPort(
        node=link.b.node,
        interface=link.b.interface,
        rate_bps=float(link.rate_bps),
        buffer_bytes=queues.buffer,
        kmin_bytes=queues.ecn.kmin,
        kmax_bytes=queues.ecn.kmax,
        pmax=queues.ecn.pmax,
        feedback_ns=feedback_ns,
        packet_bytes=packet,
        payload_share=plan.job.transport.mtu / packet,
    )


def fair_shares(
    plan: JobPlan,
    report: JobReport,
    feedback_ns: float,
    queue: Sequence[tuple[int, float]],
    seeds: Sequence[int],
) -> FairShares:
    """Lab and model side by side, for an incast with a duration.

    `plan` is that of the report's job; `feedback_ns` is the round trip without a queue; `queue` the
    port's depth in bytes at times after the start of the job; both in the modelled network's
    clock.
    """
    job = plan.collective
    port = shared_port(plan, round(feedback_ns))
    starts_ns = tuple(stream.start_ns for stream in plan.streams)
    assert job.duration is not None
    lab = _measured(report, [stream.source for stream in plan.streams], job.duration, queue)
    runs = [_modelled(port, job, starts_ns, seed) for seed in seeds]
    model = _course(runs[0], port)
    last_ns = max(starts_ns)
    settled_ns = round(last_ns + (job.duration - last_ns) * (1 - SETTLED))
    return FairShares(
        port=port,
        starts_ns=starts_ns,
        tolerance=TOLERANCE,
        window_ns=WINDOW_NS,
        lab_ns=_time_to_fairness(np.array(lab.times_ns), np.array(lab.rates_bps), last_ns),
        model_times_ns=tuple(
            _time_to_fairness(run.times_ns, run.rates_bps, last_ns) for run in runs
        ),
        lab=lab,
        model=model,
        lab_settled=_settled(lab, port, settled_ns),
        model_settled=_settled(model, port, settled_ns),
    )


def _time_to_fairness(
    times_ns: npt.NDArray[np.int64], rates_bps: Floats, last_ns: int
) -> int | None:
    return time_to_fairness(times_ns, rates_bps, last_ns, TOLERANCE, WINDOW_NS)


def _measured(
    report: JobReport, senders: Sequence[int], duration_ns: int, queue: Sequence[tuple[int, float]]
) -> RateCourse:
    """The lab's course, up to the end of the job: after it queues only drain."""
    step_ns = report.goodput.step.modelled_ns
    rates = {sender.rank: sender.rate_bps for sender in report.goodput.senders}
    whole = int(duration_ns // step_ns)
    steps = min(whole, *(len(rates[sender]) for sender in senders))
    within = [(at, depth) for at, depth in queue if at <= duration_ns]
    return RateCourse(
        times_ns=tuple(round((index + 1) * step_ns) for index in range(steps)),
        rates_bps=tuple(rates[sender][:steps] for sender in senders),
        queue_times_ns=tuple(at for at, _ in within),
        queue_bytes=tuple(depth for _, depth in within),
    )


def _modelled(port: SharedPort, job: JobSpec, starts_ns: Sequence[int], seed: int) -> ModelRun:
    assert job.duration is not None
    bottleneck = Bottleneck(
        capacity_bps=port.rate_bps,
        buffer_bytes=port.buffer_bytes,
        kmin_bytes=port.kmin_bytes,
        kmax_bytes=port.kmax_bytes,
        pmax=port.pmax,
        feedback_ns=port.feedback_ns,
        packet_bytes=port.packet_bytes,
    )
    line_bps = int(port.rate_bps)
    chosen = parameters(job.transport.dcqcn, line_bps)
    return simulate(chosen, bottleneck, starts_ns, job.duration, line_bps, seed=seed)


def _course(run: ModelRun, port: SharedPort, points: int = 400) -> RateCourse:
    """The model's course, thinned to about as many points as a plot can show."""
    every = max(1, len(run.times_ns) // points)
    whole = len(run.times_ns) // every * every
    ends = run.times_ns[:whole].reshape(-1, every)[:, -1]
    rates = run.rates_bps[:, :whole].reshape(len(run.rates_bps), -1, every).mean(axis=2)
    queue = run.queue_bytes[:whole].reshape(-1, every).mean(axis=1)
    times = tuple(int(end) for end in ends)
    return RateCourse(
        times_ns=times,
        rates_bps=tuple(
            tuple(float(round(rate)) for rate in sender) for sender in rates * port.payload_share
        ),
        queue_times_ns=times,
        queue_bytes=tuple(float(round(depth)) for depth in queue),
    )


def _settled(course: RateCourse, port: SharedPort, from_ns: int) -> SettledMeans:
    late = np.array(course.times_ns) > from_ns
    total = np.array(course.rates_bps).sum(axis=0)[late]
    queue = np.array(course.queue_bytes)[np.array(course.queue_times_ns) > from_ns]
    return SettledMeans(
        use=float(total.mean() / (port.rate_bps * port.payload_share)) if total.size else 0.0,
        queue_bytes=float(queue.mean()) if queue.size else None,
    )
