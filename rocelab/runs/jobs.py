"""Runs jobs on a lab that is up: starts them, carries out faults, watches endpoints and devices.

Several jobs may run at the same time; each gets a `JobReport`, a single job also `result.json` and
a capture on request. A job that does not fit is refused before anything is touched. The lab is
unchanged after a return, an exception or a kill.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError, MachineError
from rocelab.base.outputs import REPORT, RESULT, output_file, results_folder
from rocelab.base.progress import ProgressSink, no_progress
from rocelab.base.wording import counted
from rocelab.faults.base import StoppingFault, Timed
from rocelab.faults.changewatch import ChangeWatch
from rocelab.faults.injector import InjectedChange, Injector
from rocelab.faults.timetable import carried_out, events_of, prepare_first
from rocelab.jobs.job_spec import LabJob
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.jobs.load import warning
from rocelab.lab import settings
from rocelab.lab.inuse import Use, in_use
from rocelab.lab.lab import RunningLab
from rocelab.linux import sockets
from rocelab.linux.rights import need_root
from rocelab.observe.capture import NicCapture
from rocelab.observe.devices import DeviceWatch
from rocelab.observe.environment import environment_of
from rocelab.observe.processes import ProcessWatch
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.prediction.matrix import row_of_end
from rocelab.prediction.predictor import Setting, asked_fabric, paths_on
from rocelab.record import LabFiles, not_up
from rocelab.report.job import job_document
from rocelab.report.renderers.page import html
from rocelab.results.job import JobReport
from rocelab.results.probes import rebased
from rocelab.results.stages import Stages
from rocelab.routes.path import NoPathError
from rocelab.runs.effects import late_carriers, link_events
from rocelab.runs.fidelity import stolen_cpu_s
from rocelab.runs.jobcounts import Paths
from rocelab.runs.jobreport import JobsRecord, NetworkRecord, job_reports
from rocelab.runs.observers import Observers, can_trace
from rocelab.runs.tcp import TcpWatch
from rocelab.traffic.session import TrafficSession


@dataclass(frozen=True, slots=True)
class MeasuredJobs:
    """The report of each job of a run, and when they began, CLOCK_REALTIME."""

    reports: tuple[JobReport, ...]
    started_ns: int


@dataclass(frozen=True, slots=True)
class _NetworkJobs:
    """A network as a lab, and the jobs in it with their numbers among all, from 0."""

    lab: RunningLab
    plans: tuple[JobPlan, ...]
    numbers: tuple[int, ...]


def run_job(
    lab: RunningLab,
    job: LabJob,
    *,
    out: Path | None = None,
    overwrite: bool = False,
    pcap: Path | None = None,
    allow_faults: bool = False,
    progress: ProgressSink = no_progress,
    on_warning: Callable[[str], object] = lambda text: None,
    on_result: Callable[[JobReport], object] = lambda report: None,
) -> JobReport:
    """Run `job` on a lab that is up and report.

    `out` is a folder, created if missing, for result.json and report.html; `pcap` a pcapng file for
    what the ranks' NICs send and receive. Neither may exist without `overwrite`. With
    `allow_faults` others may break the lab meanwhile: the report then says by what it was
    `disturbed`. `on_warning` gets what is known before the run: that this machine will probably not
    carry it, or that the lab is in a state without valid figures. `on_result` gets the report
    before it is written.

    Raises InputError if the lab is not up or busy, the job does not fit it (`plan_job`), or `out`
    or `pcap` cannot be written; MachineError if this machine cannot run it. A run that the machine
    could not carry is no error here: its report has `problems`.
    """
    (report,) = run_listed_jobs(
        lab,
        [job],
        out=out,
        overwrite=overwrite,
        pcap=pcap,
        allow_faults=allow_faults,
        progress=progress,
        on_warning=on_warning,
        on_results=lambda reports: on_result(*reports),
    )
    return report


def run_listed_jobs(
    lab: RunningLab,
    jobs: Sequence[LabJob],
    *,
    out: Path | None = None,
    overwrite: bool = False,
    pcap: Path | None = None,
    allow_faults: bool = False,
    progress: ProgressSink = no_progress,
    on_warning: Callable[[str], object] = lambda text: None,
    on_results: Callable[[tuple[JobReport, ...]], object] = lambda reports: None,
) -> tuple[JobReport, ...]:
    """Run `jobs` at the same time as `run_job` runs one, and report each. Of several `out` has
    result-N.json and report-N.html each, from 1, and `pcap` is refused."""
    plans = plan_jobs(lab.fabric, jobs)
    _check_ready(lab, plans)
    if pcap is not None and len(plans) > 1:
        raise InputError(f"a capture of {len(plans)} jobs", hint="capture one job at a time")
    title = jobs[0].title if len(jobs) == 1 else f"{len(jobs)} jobs"
    with (
        nullcontext() if pcap is None else output_file(pcap, overwrite=overwrite) as packets,
        nullcontext() if out is None else results_folder(out, overwrite=overwrite) as folder,
        in_use(
            LabFiles(lab.name),
            f"a job ({title})" if len(jobs) == 1 else title,
            Use.UNDER_FAULTS if allow_faults else Use.ALONE,
        ),
    ):
        for text in _warnings_before(lab, plans):
            on_warning(text)
        capture = None if packets is None else NicCapture(lab, plans[0], packets)
        run = _run_watched if allow_faults else run_planned
        reports = run(lab, plans, progress, capture=capture).reports
        if capture is not None and capture.lost:
            lacks = f"the capture lacks {counted(capture.lost, 'packet')} that tcpdump missed"
            reports = tuple(
                replace(report, warnings=(*report.warnings, lacks)) for report in reports
            )
        on_results(reports)
        if folder is not None:
            folder.replace_all(_files(reports))
    return reports


def _files(reports: Sequence[JobReport]) -> dict[str, str]:
    """The content of each file of a folder of results."""
    if len(reports) == 1:
        (report,) = reports
        return {RESULT: to_json(report), REPORT: html(job_document(report))}
    files: dict[str, str] = {}
    for number, report in enumerate(reports, 1):
        files[f"{RESULT.removesuffix('.json')}-{number}.json"] = to_json(report)
        files[f"{REPORT.removesuffix('.html')}-{number}.html"] = html(job_document(report))
    return files


def run_job_under_faults(
    lab: RunningLab, job: LabJob, progress: ProgressSink = no_progress
) -> MeasuredJobs:
    """Run `job` while others may break the lab, as `run_job` does with `allow_faults`, and raise as
    it does."""
    plans = plan_jobs(lab.fabric, [job])
    _check_ready(lab, plans)
    with in_use(LabFiles(lab.name), f"a job ({job.title})", Use.UNDER_FAULTS):
        return _run_watched(lab, plans, progress)


def _run_watched(
    lab: RunningLab,
    plans: Sequence[JobPlan],
    progress: ProgressSink,
    capture: AbstractContextManager[object] | None = None,
) -> MeasuredJobs:
    """Run jobs that others may disturb: by what, and what the switches then did, is in each
    report."""
    observers = Observers(lab, stages=can_trace(lab.fabric), health=None, evidence=None)
    with (
        ChangeWatch(lab) as by_hand,
        opened_namespaces(lab, lab.fabric.switches) as namespaces,
        FibTimeline(lab, namespaces) as fib,
        observers,
    ):
        measured = run_planned(lab, plans, progress, capture=capture, by_hand=by_hand)
    stages = stages_of_jobs(measured, observers, fib)
    reports = tuple(
        replace(report, stages=stages, problems=(*report.problems, *observers.problems))
        for report in measured.reports
    )
    return replace(measured, reports=reports)


def stages_of_jobs(
    measured: MeasuredJobs, observers: Observers, fib: FibTimeline
) -> tuple[Stages, ...]:
    """The stages of each event's time in the switches, because a job's packets do not show when the
    event ended."""
    start_ns, end_ns = measured.started_ns, time.clock_gettime_ns(time.CLOCK_REALTIME)
    events = [rebased(event, -start_ns) for event in measured.reports[0].events]
    return observers.stages(events, end_ns, fib.changes(start_ns, end_ns))


def run_jobs(
    lab: RunningLab,
    jobs: Sequence[LabJob],
    progress: ProgressSink = no_progress,
    faults: Sequence[Timed] = (),
) -> MeasuredJobs:
    """Run `jobs` at the same time on a lab that is up. Returns their reports in order.

    All begin together, and the run ends with the last. `faults` are injected meanwhile, in the
    lab's clock from the jobs' start, and undone by the end. Counts of devices cover all jobs of a
    network and are the same in each of their reports. Raises as `run_job` does.
    """
    return run_planned(lab, plan_jobs(lab.fabric, jobs), progress, faults)


def run_planned(
    lab: RunningLab,
    plans: Sequence[JobPlan],
    progress: ProgressSink = no_progress,
    faults: Sequence[Timed] = (),
    capture: AbstractContextManager[object] | None = None,
    by_hand: ChangeWatch | None = None,
) -> MeasuredJobs:
    """Run jobs as `run_jobs` does, within `capture` if there is one; `by_hand` knows the faults of
    others. The plans have the fabric with the hash seeds and the scheme that the lab's switches
    have now."""
    _check_ready(lab, plans)
    environment = environment_of(lab)
    networks = _by_network(lab, plans)
    with (
        lab.locked(),
        link_events(lab) if faults else nullcontext(()) as ports,
        Injector(lab) as injector,
        ExitStack() as watches,
        TcpWatch(lab, plans) as tcp,
        capture or nullcontext(),
    ):
        devices = [watches.enter_context(DeviceWatch(of.lab, of.plans)) for of in networks]
        paths = [_paths(of.lab, of.plans) for of in networks]
        session = TrafficSession(
            networks[0].lab.fabric,
            lambda name: lab.node(name).netns,
            (),
            plans,
            is_watched=by_hand is not None,
        )
        with session:
            prepared = prepare_first(injector, faults)
            stolen_s, started_s = stolen_cpu_s(), time.monotonic()
            with carried_out(injector, faults, session.start(), prepared) as problems:
                session.wait_for_jobs(
                    progress, max((timed.ends_ns or timed.begins_ns for timed in faults), default=0)
                )
            elapsed_s, stolen_s = time.monotonic() - started_s, stolen_cpu_s() - stolen_s
            of_others = () if by_hand is None else by_hand.changes()
            traffic = session.stop(_paused((*injector.changes, *of_others)))
        counts = [watch.read(traffic.started_ns) for watch in devices]
        seen = tcp.read(traffic.started_ns)
        events = tuple(
            rebased(event, traffic.started_ns)
            for event in events_of((*injector.happened(), *of_others), apart_ns=1)
        )
        disturbed = () if by_hand is None else by_hand.disturbances(traffic.started_ns)
        injector.restore_all()
        unplanned = [
            problem
            for of in networks
            for problem in settings.problems(of.plans[0].fabric, lab.runtime.files)
        ]
    # A job has no packet interval that would excuse more than the port events' own delay.
    late = late_carriers(lab.fabric, injector.changes, ports, resolution_ns=0)
    record = JobsRecord(
        environment=environment,
        traffic=traffic,
        networks=tuple(
            NetworkRecord(of.numbers, count, path)
            for of, count, path in zip(networks, counts, paths, strict=True)
        ),
        elapsed_s=elapsed_s,
        stolen_s=stolen_s,
        events=events,
        disturbed=disturbed,
        problems=(*problems, *injector.unseen, *unplanned, *late),
        tcp=seen,
    )
    return MeasuredJobs(job_reports(record), traffic.started_ns)


def _warnings_before(lab: RunningLab, plans: Sequence[JobPlan]) -> tuple[str, ...]:
    """Warnings before a run that this machine will probably not carry, or whose figures will not be
    valid as the lab is now: it may carry nothing."""
    load = warning(plans, len(os.sched_getaffinity(0)))
    problems = [
        problem
        for network in (of.lab for of in _by_network(lab, plans))
        for problem in (
            *ProcessWatch(network).figures().problems,
            *settings.problems(network.fabric, network.runtime.files),
        )
    ]
    return (*(() if load is None else (load,)), *(f"this run is {problem}" for problem in problems))


def _by_network(lab: RunningLab, plans: Sequence[JobPlan]) -> tuple[_NetworkJobs, ...]:
    """The jobs of each network that has any."""
    numbers: dict[str | None, list[int]] = defaultdict(list)
    for number, plan in enumerate(plans):
        numbers[plan.fabric.network_name].append(number)
    return tuple(
        _NetworkJobs(lab.network(name), tuple(plans[number] for number in of), tuple(of))
        for name, of in numbers.items()
    )


def _check_ready(lab: RunningLab, plans: Sequence[JobPlan]) -> None:
    """Raises InputError if the lab is not up, MachineError if this machine cannot run the jobs."""
    if not lab.is_running:
        raise not_up(lab.name)
    need_root("sending in a lab")
    for clock in filter(None, (plan.tcp_clock for plan in plans)):
        if not sockets.has_congestion_control(clock.congestion_control.value):
            raise MachineError(
                f"this machine's kernel has no TCP {clock.congestion_control}",
                f"load it with `modprobe tcp_{clock.congestion_control}`, or give transport "
                "another congestion_control",
            )


def _paths(lab: RunningLab, plans: Sequence[JobPlan]) -> Paths:
    """The paths of the jobs' data by the kernels' tables; empty if the scheme does not decide them,
    or the seeds are not known."""
    ends = [(plan, end) for plan in plans for end in plan.ends if not end.control]
    if not ends:
        return {}
    try:
        fabric = asked_fabric(plans[0].fabric, lab.steering.read_scheme())
        paths = paths_on(fabric, [row_of_end(*end) for end in ends], Setting(lab.read_fibs()))
    except (InputError, NoPathError):
        return {}
    return {
        end.number: tuple(link.name for link in path)
        for (_, end), path in zip(ends, paths, strict=True)
    }


def _paused(changes: Sequence[InjectedChange]) -> set[str]:
    """The servers that a fault stopped."""
    faults = [change.fault for change in changes]
    return {
        server for fault in faults if isinstance(fault, StoppingFault) for server in fault.stopped()
    }
