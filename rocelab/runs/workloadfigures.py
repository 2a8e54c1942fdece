"""When the flows or the steps of a workload were over, from a job's recorded sends. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rocelab.base.arrays import Floats, Longs
from rocelab.base.statistics import spread
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.messages import loads_of
from rocelab.jobs.performance import jct_ratio
from rocelab.jobs.served import Served
from rocelab.jobs.serving.rates import served_headlines
from rocelab.jobs.workloads import WorkloadRate, WorkloadSpec
from rocelab.results.flowtimes import StepTimes, slowdown_by_size, times_of_flows
from rocelab.results.job import Headline, WorkloadFigures
from rocelab.runs.jobcounts import Paths
from rocelab.traffic.jobresult import JobResult, StepRecord

MOST_STEPS = 200
"""Steps of an iteration that a document has."""


def workload_figures(job: JobResult, paths: Paths) -> WorkloadFigures | None:
    """What a document has of a workload; None for other jobs."""
    made = job.plan.of_workload
    if made is None:
        return None
    steps: tuple[StepTimes, ...] = ()
    times = slowdown = None
    if job.steps is not None and not job.errors:
        last = made.iterations - 1
        if job.plan.is_open_loop:
            took_ns, over_least = _flows(job.plan, job.steps, paths)
            times = times_of_flows(took_ns, over_least)
            sizes = np.array([send.size_bytes for send in made.schedule.sends], np.int64)
            slowdown = slowdown_by_size(sizes, over_least)
        else:
            begins_ns, ends_ns = _steps(job, job.steps, len(job.steps.posted_ns) - 1)
            begin_ns = float(made.spans(ends_ns)[0][last])
            steps = tuple(
                StepTimes(step.name, begin - begin_ns, end - begin_ns)
                for step, begin, end in zip(
                    made.workload.steps, begins_ns.tolist(), ends_ns.tolist(), strict=True
                )
                if step.sends is not None and step.iteration == last
            )[:MOST_STEPS]
    return WorkloadFigures(steps, times, slowdown, _served(job))


def workload_headlines(job: JobResult) -> tuple[Headline, ...]:
    """The headlines of a workload, as a simulation has them; none if the job failed."""
    plan, block = job.plan, _block(job.plan)
    if job.errors or not len(job.iteration_ns) or plan.least_ns is None:
        return ()
    modelled_ns = iteration_times_ns(job)
    lab_ns = [took * plan.dilation for took in modelled_ns]
    of = "flows" if plan.is_open_loop else "measured iterations"
    title = "until the last flow was over" if plan.is_open_loop else "time of an iteration"
    whole = Headline("iteration_time", title, "ns", of, spread(modelled_ns), spread(lab_ns))
    rates = [
        *block.rates([took / 1e9 for took in modelled_ns]),
        *_latencies(job, block),
        *served_headlines(_served(job)),
        WorkloadRate(
            "jct_ratio",
            "time over its lower bound (JCT ratio)",
            "",
            [jct_ratio(took, plan.least_ns) for took in modelled_ns],
        ),
    ]
    return (
        whole,
        *(
            Headline(rate.name, rate.title, rate.unit, of, spread(rate.values), None)
            for rate in rates
        ),
    )


def _served(job: JobResult) -> Served | None:
    """What the requests of a job felt; None for a job without any, or that failed."""
    plan, record = job.plan, job.steps
    if plan.where is None or not plan.is_open_loop or record is None or job.errors:
        return None
    begin_ns = min(int(rank.began_ns[0]) for rank in job.ranks)
    return _block(plan).served(plan.where, (record.acked_ns[0] - begin_ns) / plan.dilation / 1e9)


def iteration_times_ns(job: JobResult) -> list[float]:
    """How long each measured iteration of a workload took, of the modelled network."""
    made = job.plan.of_workload
    assert made is not None
    if not job.plan.is_unrolled:
        return [took / job.plan.dilation for took in job.iteration_ns.tolist()]
    if job.steps is None or job.errors:
        return []
    begins_ns, ends_ns = made.spans(_steps(job, job.steps, 0)[1])
    times_ns: list[float] = (ends_ns - begins_ns).tolist()
    return times_ns


def _block(plan: JobPlan) -> WorkloadSpec:
    assert isinstance(plan.job, SimulatedJob)
    block = plan.job.workload
    assert block is not None
    return block


def _latencies(job: JobResult, block: WorkloadSpec) -> list[WorkloadRate]:
    """The job's own figures of when its steps were over, in the recorded iterations."""
    made, record = job.plan.of_workload, job.steps
    if made is None or record is None or job.plan.is_open_loop:
        return []
    ends: list[Mapping[str, float]] = []
    for row in range(len(record.posted_ns)):
        _, ends_ns = _steps(job, record, row)
        for iteration, begin_ns in enumerate(made.spans(ends_ns)[0].tolist()):
            steps = zip(made.workload.steps, ends_ns.tolist(), strict=True)
            ends.append(
                {
                    step.name: (end_ns - begin_ns) / 1e9
                    for step, end_ns in steps
                    if step.iteration == iteration
                }
            )
    return block.latencies(ends)


def _steps(job: JobResult, record: StepRecord, row: int) -> tuple[Floats, Floats]:
    """When each step of a recorded iteration began to send and was over, in ns of the modelled
    network from the iteration's begin."""
    made = job.plan.of_workload
    assert made is not None
    iteration = record.first + row
    begin_ns = (
        max(int(rank.ended_ns[iteration - 1]) for rank in job.ranks)
        if iteration
        else min(int(rank.began_ns[0]) for rank in job.ranks)
    )
    ends_ns = np.maximum(record.acked_ns[row], record.arrived_ns[row])
    return made.step_times(
        (record.posted_ns[row] - begin_ns) / job.plan.dilation,
        (ends_ns - begin_ns) / job.plan.dilation,
    )


def _flows(plan: JobPlan, record: StepRecord, paths: Paths) -> tuple[Floats, Floats]:
    """How long each flow took, in ns of the modelled network, and over the least time: its bytes on
    the wire at the lowest rate of its path, or of its NICs if the path is not known, and the
    delays that the lab's links have."""
    assert plan.schedule is not None
    sends = plan.schedule.sends
    wire = _wire_bytes(plan)
    numbers = {
        end.send: end.number
        for end in plan.ends
        if end.send is not None and not end.control and end.rank == sends[end.send].source
    }
    rate_bps, delay_ns = np.zeros((2, len(sends)))
    for send in sends:
        links = [plan.fabric.link_by_name[name] for name in paths.get(numbers.get(send.id, -1), ())]
        rates = [float(plan.nic_rate_bps(rank)) for rank in (send.source, send.destination)]
        local = None if plan.hosts is None else plan.hosts.model.local
        if local is not None and plan.is_local(send):
            rates, wire[send.id] = [local.bandwidth_bps], send.size_bytes
        rate_bps[send.id] = min(rates + [float(link.rate_bps) for link in links])
        delay_ns[send.id] = sum(link.delay_ns or 0 for link in links)
    took_ns: Floats = (record.acked_ns[0] - record.posted_ns[0]) / plan.dilation
    return took_ns, took_ns / (wire * 8e9 / rate_bps + delay_ns)


def _wire_bytes(plan: JobPlan) -> Longs:
    """The bytes of each send on a cable."""
    assert plan.schedule is not None
    size = np.array([send.size_bytes for send in plan.schedule.sends], np.int64)
    overhead = plan.packet_overhead_bytes
    if plan.job.transport.is_tcp:
        segments: Longs = size + -(-size // plan.packet_payload_bytes) * overhead
        return segments
    number = np.arange(len(size))
    wire: Longs = loads_of(number, size, np.ones_like(size), plan.job.transport, overhead).wire.sum(
        axis=1
    )
    return wire
