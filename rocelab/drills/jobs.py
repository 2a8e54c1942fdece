"""A phase of jobs: runs them at the same time during faults, and compares them with a model.

The lab must have the phase's conditions. The result is a `JobsRun`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from rocelab.base.outputs import OutputPlace
from rocelab.base.progress import ProgressSink
from rocelab.dataplane.queues.engine import read_engine
from rocelab.dataplane.queues.reading import QueueSampler
from rocelab.diagnose.diagnose import finding_of
from rocelab.drills.plan import JobPhase
from rocelab.jobs.jobplan import JobPlan
from rocelab.lab.lab import RunningLab
from rocelab.labfile.queues import QueueEngine
from rocelab.observe.timeline import FibTimeline
from rocelab.record import LabFiles
from rocelab.results.drill import JobsRun, PhaseRun
from rocelab.results.shares import FairShares
from rocelab.runs.fairness import fair_shares, shared_port
from rocelab.runs.jobs import MeasuredJobs, run_planned, stages_of_jobs
from rocelab.runs.observers import Observers

QueueDepths = list[tuple[int, float]]


def run_job_phase(
    lab: RunningLab,
    phase: JobPhase,
    fib: FibTimeline,
    before: Sequence[PhaseRun],
    evidence: OutputPlace | None,
    progress: ProgressSink,
) -> JobsRun:
    """Run the phase's jobs. `fib` records the lab's tables, `before` has the earlier phases;
    `evidence` is the folder for bundles. Raises as `run_planned` does."""
    spec = phase.spec
    observers = Observers(lab, stages=spec.measure.stages, health=spec.health, evidence=evidence)
    with observers, _sampler(lab, phase) as sampler:
        measured = run_planned(lab, phase.jobs, progress, phase.faults)
        observers.collect_evidence()
    problems = [problem for report in measured.reports for problem in report.problems]
    return JobsRun(
        problems=(*dict.fromkeys(problems), *observers.problems),
        reports=measured.reports,
        has_model=spec.model is not None,
        fair_shares=_fair_shares(phase, measured, before, sampler),
        stages=stages_of_jobs(measured, observers, fib),
        health=observers.health,
        diagnoses=tuple(map(finding_of, measured.reports)) if spec.expect.of("diagnosis") else (),
    )


def _sampler(lab: RunningLab, phase: JobPhase) -> AbstractContextManager[QueueSampler | None]:
    """The samples of queues for the model; None if there is no model, or no queue."""
    if phase.spec.model is None or read_engine(LabFiles.of(phase.fabric)) is QueueEngine.OFF:
        return nullcontext()
    return QueueSampler(phase.fabric)


def _fair_shares(
    phase: JobPhase,
    measured: MeasuredJobs,
    before: Sequence[PhaseRun],
    sampler: QueueSampler | None,
) -> FairShares | None:
    """The model compared with the phase's job; None if the phase has no model, or the job failed or
    sent nothing."""
    if phase.spec.model is None:
        return None
    (plan,), (report,) = phase.jobs, measured.reports
    idle = next(run for run in before if run.phase == phase.spec.model.round_trip)
    trips = idle.reports[0].round_trips
    if report.errors or not report.goodput.senders or trips is None:
        return None
    depths = [] if sampler is None else _depths(sampler, plan, report.data_class)
    return fair_shares(plan, report, trips.p50.modelled_ns, depths, phase.spec.model.seeds)


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
