"""A phase of jobs: runs them at the same time during faults, and compares them with a model.

The lab must have the phase's conditions. The result is a `JobsRun`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack

from rocelab.diagnose.diagnose import finding_of
from rocelab.drills.conditions import under
from rocelab.drills.spec import PhaseSpec
from rocelab.faults.schedule import Timed
from rocelab.jobs.jobplan import JobPlan, plan_jobs
from rocelab.measure.fairness import fair_shares, shared_port
from rocelab.measure.health.monitor import HealthMonitor
from rocelab.measure.run import MeasuredJobs, run_jobs
from rocelab.measure.stages.event import stages_of_events
from rocelab.measure.stages.recorder import StageRecorder
from rocelab.measure.timeline import FibTimeline
from rocelab.outputs import Place
from rocelab.progress import ProgressSink
from rocelab.results.drill import JobsRun, PhaseRun
from rocelab.results.kpis import data_class
from rocelab.results.probes import rebased
from rocelab.results.shares import FairShares
from rocelab.results.stages import Stages
from rocelab.runtime.lab import Lab
from rocelab.runtime.queues.engine import read_engine
from rocelab.runtime.queues.reading import QueueSampler
from rocelab.runtime.record import LabFiles
from rocelab.spec.queues import QueueEngine

QueueDepths = list[tuple[int, float]]


def run_job_phase(
    lab: Lab,
    phase: PhaseSpec,
    faults: Sequence[Timed],
    fib: FibTimeline,
    before: Sequence[PhaseRun],
    evidence: Place | None,
    progress: ProgressSink,
) -> JobsRun:
    """Run the phase's jobs. `fib` records the lab's tables, `before` has the earlier phases;
    `evidence` is the folder for bundles. Raises as `run_jobs` does."""
    (*_, plan) = plan_jobs(lab.fabric, phase.jobs)
    with ExitStack() as stack:
        recorder = stack.enter_context(StageRecorder(lab)) if phase.measure.stages else None
        monitor = None
        if phase.health is not None:
            monitor = HealthMonitor(lab, phase.health, evidence=evidence, evidence_later=True)
            stack.enter_context(monitor)
        sampler = None
        if phase.model is not None and read_engine(LabFiles(lab.name)) is not QueueEngine.OFF:
            sampler = stack.enter_context(QueueSampler(lab.fabric))
        measured = run_jobs(lab, phase.jobs, progress, faults, seeded=under(lab, phase))
        if monitor is not None:
            # Captures and the daemons' tables take CPU time: never during a measurement.
            monitor.collect_evidence()
    problems = [problem for report in measured.reports for problem in report.problems]
    return JobsRun(
        problems=(*dict.fromkeys(problems), *(() if recorder is None else recorder.problems())),
        reports=measured.reports,
        has_model=phase.model is not None,
        fair_shares=_fair_shares(lab, phase, measured, plan, before, sampler),
        stages=() if recorder is None else _stages(measured, recorder, fib),
        health=None if monitor is None else monitor.report,
        diagnoses=tuple(map(finding_of, measured.reports)) if phase.expect.of("diagnosis") else (),
    )


def _stages(
    measured: MeasuredJobs, recorder: StageRecorder, fib: FibTimeline
) -> tuple[Stages, ...]:
    """The stages of each event's time in the switches, because a job's packets do not show when the
    event ended."""
    start_ns, end_ns = measured.started_ns, time.clock_gettime_ns(time.CLOCK_REALTIME)
    events = [rebased(event, -start_ns) for event in measured.reports[0].events]
    return stages_of_events(events, end_ns, recorder, fib.changes(start_ns, end_ns))


def _fair_shares(
    lab: Lab,
    phase: PhaseSpec,
    measured: MeasuredJobs,
    plan: JobPlan,
    before: Sequence[PhaseRun],
    sampler: QueueSampler | None,
) -> FairShares | None:
    """The model compared with the phase's job; None if the phase has no model, or the job failed or
    sent nothing."""
    if phase.model is None:
        return None
    (report,) = measured.reports
    idle = next(run for run in before if run.phase == phase.model.round_trip)
    trips = idle.reports[0].round_trips
    if report.errors or not report.goodput.senders or trips is None:
        return None
    depths = [] if sampler is None else _depths(sampler, plan, data_class(report))
    return fair_shares(lab.fabric, report, trips.p50.modelled_ns, depths, phase.model.seeds)


def _depths(sampler: QueueSampler, plan: JobPlan, traffic_class: int) -> QueueDepths:
    """Bytes in the shared port's queue at every round of samples, by modelled time. Time 0 is the
    first round with a filled queue: the senders start within an interval before it."""
    port = shared_port(plan, 0)
    seen = {
        sample.t_ns: sample.depth_bytes
        for sample in sampler.samples
        if (sample.node, sample.interface, sample.traffic_class)
        == (port.node, port.interface, traffic_class)
    }
    if not seen:
        return []
    start_ns = min(seen)
    return [
        (round((t_ns - start_ns) / plan.dilation), float(seen.get(t_ns, 0)))
        for t_ns in sampler.times_ns
        if t_ns >= start_ns
    ]
