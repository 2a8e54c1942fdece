"""A drill of jobs, end to end: bring the lab up, run the jobs of each phase, take it down, sum up.

In: a `JobDrillSpec` and its file's place. Out: a `JobDrillResult`. Every phase is planned before
the lab comes up, so what does not fit is refused first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from rocelab.drills.catalog import lab_of
from rocelab.drills.labuse import LabUse, fresh
from rocelab.drills.phases.conditions import conditions, under
from rocelab.drills.phases.spec import JobDrillSpec, PhaseSpec
from rocelab.errors import InputError
from rocelab.faults.resolve import resolve
from rocelab.faults.schedule import expand
from rocelab.jobs.jobplan import JobPlan, plan_jobs
from rocelab.measure.attempts import measure_valid
from rocelab.measure.environment import read_environment
from rocelab.measure.fairness import fair_shares, shared_port
from rocelab.measure.run import run_jobs
from rocelab.measure.timeline import FibTimeline, opened_namespaces
from rocelab.plan.build import plan
from rocelab.progress import Progress, ProgressSink, no_progress
from rocelab.results.kpis import data_class
from rocelab.results.phases import JobDrillResult, PhaseRun, conclude
from rocelab.runtime.convergence import convergence_timeout_s
from rocelab.runtime.lab import Lab
from rocelab.runtime.providers import NodeProvider
from rocelab.runtime.queues.engine import read_engine
from rocelab.runtime.queues.reading import QueueSampler
from rocelab.runtime.record import LabFiles
from rocelab.spec.load import load_spec
from rocelab.spec.queues import QueueEngine
from rocelab.spec.reference import named_by

QueueDepths = list[tuple[int, float]]


def run_job_drill(
    drill: JobDrillSpec,
    path: Path,
    repeats: int,
    retries: int,
    progress: ProgressSink = no_progress,
    use: LabUse = fresh,
    provider: NodeProvider | None = None,
) -> JobDrillResult:
    """Run the drill read from `path`, `repeats` times on one lab, and give its result. Up to
    `retries` invalid repeats are run again.

    The lab is up for it as `use` has it, and down after it unless that says otherwise. Raises
    InputError where its lab can not be used, a job does not fit it, or a lab of that name is up;
    MachineError where this machine can not run it; ExpectationError where the lab does not come up
    whole.
    """
    lab = planned_lab(drill, path, provider)
    plans = {phase.name: _planned(lab, phase) for phase in drill.phases}
    with use(lab, progress) as lab:
        environment = read_environment(lab.installation)
        measured = measure_valid(
            repeats,
            retries,
            lambda which: _run_phases(lab, drill, plans, which, progress),
            lambda runs: all(run.valid for run in runs),
        )
    return conclude(
        drill=drill.model_dump(mode="json", exclude_none=True),
        lab=lab.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        dilation=lab.fabric.spec.dilation,
        notes=lab.notes,
        repeats=measured,
        expectations={phase.name: phase.expect.expectations() for phase in drill.phases},
    )


def planned_lab(drill: JobDrillSpec, path: Path, provider: NodeProvider | None = None) -> Lab:
    """The drill's lab, with the drill's dilation where it gives one.

    Raises InputError, and SpecError with every problem of the lab's file.
    """
    file = lab_of(drill, path)
    with named_by(path, file):
        spec = load_spec(file)
    if drill.dilation is not None:
        spec = spec.model_copy(update={"dilation": drill.dilation})
    return Lab(plan(spec), provider)


def _planned(lab: Lab, phase: PhaseSpec) -> tuple[JobPlan, ...]:
    """The phase's jobs on the lab. Raises InputError, which names the phase, where a job or a fault
    does not fit."""
    try:
        for timed in expand(lab.fabric, phase.faults):
            resolve(lab.fabric, timed.spec)
        return plan_jobs(under(lab, phase), phase.jobs)
    except InputError as error:
        raise InputError(f"phase {phase.name}: {error.message}", hint=error.hint) from error


def _run_phases(
    lab: Lab,
    drill: JobDrillSpec,
    plans: dict[str, tuple[JobPlan, ...]],
    which: str,
    progress: ProgressSink,
) -> list[PhaseRun]:
    runs: list[PhaseRun] = []
    for phase in drill.phases:

        def shown(step: Progress, name: str = phase.name) -> None:
            progress(Progress(f"{name}{which}", step.done, step.total))

        runs.append(_run_phase(lab, phase, plans[phase.name], runs, shown))
    return runs


def _run_phase(
    lab: Lab,
    phase: PhaseSpec,
    plans: tuple[JobPlan, ...],
    before: Sequence[PhaseRun],
    progress: ProgressSink,
) -> PhaseRun:
    with conditions(lab, phase, progress), _whole_afterwards(lab, phase):
        return _measured(lab, phase, plans, before, progress)


@contextmanager
def _whole_afterwards(lab: Lab, phase: PhaseSpec) -> Iterator[None]:
    """The next phase begins when what this one's faults did to the routes is over."""
    yield
    if phase.faults:
        with (
            opened_namespaces(lab, lab.fabric.switches) as switches,
            FibTimeline(lab, switches) as timeline,
        ):
            timeline.wait_until_whole(convergence_timeout_s(lab.fabric))


def _measured(
    lab: Lab,
    phase: PhaseSpec,
    plans: tuple[JobPlan, ...],
    before: Sequence[PhaseRun],
    progress: ProgressSink,
) -> PhaseRun:
    faults = expand(lab.fabric, phase.faults)
    if phase.model is None:
        return PhaseRun(
            phase.name, run_jobs(lab, phase.jobs, progress, expand(lab.fabric, phase.faults)), None
        )
    queued = read_engine(LabFiles(lab.name)) is not QueueEngine.OFF
    with QueueSampler(lab.fabric) if queued else nullcontext() as sampler:
        reports = run_jobs(lab, phase.jobs, progress, faults)
    (report,), (plan,) = reports, plans
    idle = next(run for run in before if run.phase == phase.model.round_trip)
    trips = idle.reports[0].round_trips
    if report.errors or not report.goodput.senders or trips is None:
        return PhaseRun(phase.name, reports, None)
    depths = [] if sampler is None else _depths(sampler, plan, data_class(report))
    feedback_ns = trips.p50.modelled_ns
    return PhaseRun(
        phase.name,
        reports,
        fair_shares(lab.fabric, report, feedback_ns, depths, phase.model.seeds),
    )


def _depths(sampler: QueueSampler, plan: JobPlan, traffic_class: int) -> QueueDepths:
    """Bytes in the shared port's queue at every round of samples, by modelled time. Time 0 is the
    first round that saw it filled: the senders start within an interval before."""
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
