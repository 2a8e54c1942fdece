"""Runs jobs on a lab that is up: starts them, watches endpoints and devices, reports.

Several jobs may run at the same time; each gets a `JobReport`, a single job also `result.json` and
a capture on request. A job that does not fit is refused before anything is touched. The lab is
unchanged after a return, an exception or a kill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from rocelab.documents import to_json
from rocelab.errors import InputError
from rocelab.faults.injector import Injector
from rocelab.faults.pauses import SPARING
from rocelab.faults.schedule import Timed
from rocelab.faults.timetable import carried_out, events_of, prepare_first
from rocelab.forwarding.balance import link_loads, tier_balances
from rocelab.forwarding.path import NoPathError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan, plan_jobs
from rocelab.jobs.load import warning
from rocelab.kernel.rights import need_root
from rocelab.measure import job as measure
from rocelab.measure import othertraffic
from rocelab.measure.accounting import check_all, disagreements
from rocelab.measure.capture import NicCapture
from rocelab.measure.devices import DeviceCounts, DeviceWatch
from rocelab.measure.effects import late_carriers, link_events
from rocelab.measure.environment import environment_of
from rocelab.measure.fidelity import stolen_cpu_s
from rocelab.measure.job import impact_of
from rocelab.measure.processes import ProcessWatch
from rocelab.outputs import RESULT, output_file, results_folder
from rocelab.plan.fabric import Fabric
from rocelab.plan.pfc import too_small
from rocelab.predict.matrix import row_of_end
from rocelab.predict.predictor import Setting, asked_fabric, paths_on
from rocelab.progress import ProgressSink, no_progress
from rocelab.results.environment import Environment
from rocelab.results.job import SCHEMA_VERSION, Clock, Fidelity, JobReport
from rocelab.results.lossless import Lossless, find_deadlock, traced
from rocelab.results.probes import Event, rebased
from rocelab.runtime import settings
from rocelab.runtime.inuse import in_use
from rocelab.runtime.lab import Lab
from rocelab.runtime.record import LabFiles, not_up
from rocelab.spec.queues import QueueEngine
from rocelab.traffic.jobresult import JobResult
from rocelab.traffic.result import TrafficResult
from rocelab.traffic.session import TrafficSession
from rocelab.wording import listed


@dataclass(frozen=True, slots=True)
class MeasuredJobs:
    """The report of each job of a run, and when they began, CLOCK_REALTIME."""

    reports: tuple[JobReport, ...]
    started_ns: int


def run_job(
    lab: Lab,
    job: JobSpec,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    pcap: Path | None = None,
    progress: ProgressSink = no_progress,
    on_result: Callable[[JobReport], object] = lambda report: None,
) -> JobReport:
    """Run `job` on a lab that is up and report.

    `out` is a folder, created if missing, for result.json; `pcap` a pcapng file for what the ranks'
    NICs send and receive. Neither may exist without `overwrite`. `on_result` gets the report before
    it is written.

    Raises InputError if the lab is not up or busy, the job does not fit it (`plan_job`), or `out`
    or `pcap` cannot be written; MachineError if this machine cannot run it. A run that the machine
    could not carry is no error here: its report has `problems`.
    """
    plans = plan_jobs(lab.fabric, [job])
    _check_ready(lab)
    with (
        nullcontext() if pcap is None else output_file(pcap, overwrite=overwrite) as packets,
        nullcontext() if out is None else results_folder(out, overwrite=overwrite) as folder,
        in_use(LabFiles(lab.name), f"a job ({job.pattern})"),
    ):
        capture = None if packets is None else NicCapture(lab, plans[0], packets)
        (report,) = _measured(lab, lab.fabric, plans, capture or nullcontext(), progress).reports
        if capture is not None and capture.lost:
            lacks = f"the capture lacks {capture.lost:,} packets tcpdump had no room or time for"
            report = replace(report, warnings=(*report.warnings, lacks))
        on_result(report)
        if folder is not None:
            folder.replace(RESULT, to_json(report))
    return report


def run_jobs(
    lab: Lab,
    jobs: Sequence[JobSpec],
    progress: ProgressSink = no_progress,
    faults: Sequence[Timed] = (),
    *,
    seeded: Fabric | None = None,
) -> MeasuredJobs:
    """Run `jobs` at the same time on a lab that is up. Returns their reports in order.

    `seeded` is the fabric with the hash seeds that switches have now, None if they have the lab's
    own. All begin together, and the run ends with the last. `faults` are injected meanwhile, in the
    lab's clock from the jobs' start, and undone by the end. Counts of devices cover all jobs and
    are the same in each report. Raises as `run_job` does.
    """
    plans = plan_jobs(lab.fabric, jobs)
    _check_ready(lab)
    return _measured(lab, seeded or lab.fabric, plans, nullcontext(), progress, faults)


def _check_ready(lab: Lab) -> None:
    if not lab.is_running:
        raise not_up(lab.name)
    need_root("sending in a lab")


def _measured(
    lab: Lab,
    seeded: Fabric,
    plans: Sequence[JobPlan],
    capture: AbstractContextManager[object],
    progress: ProgressSink,
    faults: Sequence[Timed] = (),
) -> MeasuredJobs:
    environment = environment_of(lab)
    with (
        lab.locked(),
        link_events(lab) if faults else nullcontext(()) as ports,
        Injector(lab) as injector,
        DeviceWatch(lab, plans) as devices,
        capture,
    ):
        paths = _paths(lab, seeded, plans)
        traffic, elapsed_s, stolen_s, late = _send(lab, plans, injector, faults, progress)
        counts = devices.read(traffic.started_ns)
        events = tuple(
            rebased(event, traffic.started_ns)
            for event in events_of(injector.happened(), apart_ns=1)
        )
        injector.restore_all()
        late += tuple(injector.unseen)
        late += settings.problems(seeded, lab.runtime.files)
    # A job has no packet interval that would excuse more than the port events' own delay.
    late += late_carriers(lab.fabric, injector.changes, ports, resolution_ns=0)
    reports = assemble(environment, traffic, counts, elapsed_s, stolen_s, events, late, paths)
    return MeasuredJobs(reports, traffic.started_ns)


def _paths(lab: Lab, seeded: Fabric, plans: Sequence[JobPlan]) -> measure.Paths:
    """The paths of the jobs' data by the kernels' tables; empty if the scheme does not decide them,
    or these seeds are not known."""
    ends = [(plan, end) for plan in plans for end in plan.ends if not end.control]
    try:
        fabric = asked_fabric(seeded, lab.steering.read_scheme())
        paths = paths_on(fabric, [row_of_end(*end) for end in ends], Setting(lab.read_fibs()))
    except (InputError, NoPathError):
        return {}
    return {
        end.number: tuple(link.name for link in path)
        for (_, end), path in zip(ends, paths, strict=True)
    }


def warnings_before(lab: Lab, job: JobSpec) -> tuple[str, ...]:
    """Warnings before a run that this machine will probably not carry, or whose figures will not be
    valid as the lab is now: it may carry nothing.

    Raises InputError as `plan_job` does.
    """
    load = warning(plan_jobs(lab.fabric, [job]), len(os.sched_getaffinity(0)))
    problems = (
        *ProcessWatch(lab).figures().problems,
        *settings.problems(lab.fabric, lab.runtime.files),
    )
    return (*(() if load is None else (load,)), *(f"this run is {each}" for each in problems))


def _send(
    lab: Lab,
    plans: Sequence[JobPlan],
    injector: Injector,
    faults: Sequence[Timed],
    progress: ProgressSink,
) -> tuple[TrafficResult, float, float, tuple[str, ...]]:
    """The run itself, its duration, the CPU time that the hypervisor stole meanwhile, and how the
    faults differed from the plan, if they did."""
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, (), plans) as session:
        prepared = prepare_first(injector, faults)
        stolen_s, started_s = stolen_cpu_s(), time.monotonic()
        start_ns = session.start()
        with carried_out(injector, faults, start_ns, prepared) as problems:
            session.wait_for_jobs(
                progress, max((timed.ends_ns or timed.begins_ns for timed in faults), default=0)
            )
        elapsed_s = time.monotonic() - started_s
        paused = {
            change.fault.subject for change in injector.changes if change.fault.kind == "host-pause"
        }
        stolen_s = stolen_cpu_s() - stolen_s
        return session.stop(paused), elapsed_s, stolen_s, tuple(problems)


def _warnings(
    jobs: Sequence[JobResult], cpu_count: int, moves: int, engine: QueueEngine
) -> tuple[str, ...]:
    found = []
    if engine is QueueEngine.OFF:
        found.append(
            "ports have no rate and no queue here: flows do not slow each other, so that times and "
            "bandwidths are those of NICs alone"
        )
    warned = warning([job.plan for job in jobs], cpu_count)
    if warned is not None:
        found.append(warned)
    if moves:
        found.append(
            f"NICs lost carrier on a port, or got it back: queue pairs moved to another {moves} "
            "times, and counts may differ by what dead links took"
        )
    return tuple(found)


def _with_standstill(traffic: TrafficResult, lossless: Lossless | None) -> tuple[JobResult, ...]:
    """The jobs, failed where packets that are left wait for each other, or nothing moves for
    another reason, and nothing arrives."""
    jobs = traffic.jobs
    is_still = all(agent.drained for agent in traffic.agents)
    if not is_still or not any(job.unfinished for job in jobs):
        return jobs
    ring = () if lossless is None else find_deadlock(lossless.spans, lossless.servers)
    if ring:
        error = f"deadlock: {' waits for '.join((*ring, ring[0]))}"
    elif traffic.still_ns:
        error = f"nothing moved for {traffic.still_ns / 1e9:,.0f} s{_paused_by(lossless)}"
    else:
        return jobs
    return tuple(replace(job, errors=(*job.errors, error)) for job in jobs)


def _paused_by(lossless: Lossless | None) -> str:
    """Who asked for the pauses that last."""
    if lossless is None:
        return ""
    pauses = traced(lossless.spans, lossless.servers)
    roots = sorted({pause.root for pause in pauses if pause.span.end_ns is None})
    return f": {listed(roots, 'and')} did not end a pause" if roots else ""


def _lossless_problems(counts: DeviceCounts, *, is_whole: bool) -> tuple[str, ...]:
    """Why the run is no measurement of lossless classes. is_whole: nothing was broken."""
    lossless, late = counts.lossless, counts.processes.late_on_cables
    if lossless is None:
        return ()
    found = lossless.problems()
    if is_whole:
        found += lossless.losses()
    if lossless.dropped and late:
        found += (
            f"not valid because lossless classes dropped {lossless.dropped:,} packets while cables "
            f"let {late:,} go late: these come at once with those behind them",
        )
    return found


def assemble(
    environment: Environment,
    traffic: TrafficResult,
    counts: DeviceCounts,
    elapsed_s: float,
    stolen_s: float,
    events: tuple[Event, ...] = (),
    late: tuple[str, ...] = (),
    paths: measure.Paths = MappingProxyType({}),
) -> tuple[JobReport, ...]:
    """The report of each job of a run from all counters. Pure.

    `events`: the injected faults, since the jobs' start; `late`: why they were not as planned;
    `paths`: of all jobs, whose queue pairs have numbers of their own; empty if unknown.
    """
    if not traffic.jobs:
        raise ValueError("the session had no job")
    jobs = _with_standstill(traffic, counts.lossless)
    unfinished = tuple(f"not valid because {reason}" for job in jobs for reason in job.unfinished)
    fabric, dilation = jobs[0].plan.fabric, jobs[0].plan.dilation
    checks = check_all(jobs, traffic.agents, counts)
    # Packets that a broken link took are missing, and no queue dropped them: a fault did, or it
    # ended a queue pair, or moved some to another port.
    moves = sum(pair.port_moves for job in jobs for pair in job.queue_pairs)
    kinds = {change.kind for event in events for change in event.faults}
    spared = counts.engine is QueueEngine.BPF and kinds <= SPARING
    is_whole = not moves and (spared or not events)
    differ = disagreements(checks) if is_whole and not jobs[0].errors else ()
    of_others, disturbed = othertraffic.judged(jobs, counts, elapsed_s)
    problems = traffic.problems + unfinished + differ + disturbed + late
    problems += _lossless_problems(counts, is_whole=is_whole) + counts.processes.problems
    warnings = _warnings(jobs, environment.cpu_count, moves, counts.engine)
    warnings += of_others + counts.processes.warnings + too_small(fabric)
    ports = [port for job in jobs for port in job.ports]
    fidelity = Fidelity(
        lost_share=max(map(measure.lost_share, jobs)),
        late_p99_ns=max((port.late_p99_ns for port in ports), default=0),
        late_max_ns=max((port.late_max_ns for port in ports), default=0),
        agents_cpu_s=traffic.cpu_s,
        elapsed_s=elapsed_s,
        stolen_s=stolen_s,
        clock_jump_ns=traffic.clock_jump_ns,
        softnet_drops=traffic.softnet_drops,
        backlog_share=max(agent.backlog_ns for agent in traffic.agents) / 1e9 / elapsed_s,
    )
    lab = fabric.spec.model_dump(mode="json", exclude_none=True)
    links = measure.links(fabric, counts)
    tiers = tier_balances(link_loads(fabric, counts.roce))
    return tuple(
        JobReport(
            schema_version=SCHEMA_VERSION,
            job=job.plan.job.model_dump(mode="json", exclude_none=True),
            lab=lab,
            environment=environment,
            clock=Clock(dilation),
            warnings=warnings + measure.warnings(job),
            problems=problems,
            errors=job.errors,
            fidelity=fidelity,
            headlines=measure.headlines(job),
            iterations=tuple(
                measure.times(lab_ns, dilation) for lab_ns in job.iteration_ns.tolist()
            ),
            roofline=measure.bound(job.plan),
            completion=measure.completion(job),
            ranks=measure.ranks(job),
            transport=measure.transport(job, traffic.agents),
            round_trips=trips,
            queue_engine=counts.engine.value,
            queues=counts.queues,
            links=links,
            tiers=tiers,
            goodput=measure.goodput(job),
            fairness=measure.fairness(job),
            accounting=checks,
            flows=measure.flows(job, paths),
            steps=measure.steps(job),
            stalls=measure.stalls(job),
            events=events,
            impact=impact_of(job, events),
            lossless=counts.lossless,
            resolution=measure.resolution(job, trips, fidelity.late_max_ns),
        )
        for job, trips in zip(jobs, map(measure.round_trips, jobs), strict=True)
    )
