"""Runs a drill end to end: brings the lab up, runs the phases, takes the lab down, evaluates the
result.

The result is a `DrillResult` and, on request, `result.json` and `report.html`. Everything is
planned before the lab comes up, so that errors of the drill come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path

from rocelab.documents import to_json
from rocelab.drills.catalog import lab_of
from rocelab.drills.conditions import conditions, under
from rocelab.drills.jobs import run_job_phase
from rocelab.drills.labuse import LabUse, fresh
from rocelab.drills.probes import probe_flows, probe_plan, run_probe_phase
from rocelab.drills.spec import DrillSpec, PhaseSpec, load_drill
from rocelab.errors import InputError
from rocelab.faults.schedule import Timed, expand
from rocelab.jobs.jobplan import plan_jobs
from rocelab.kernel.rights import need_root
from rocelab.measure.attempts import RETRIES, measure_valid
from rocelab.measure.environment import environment_of
from rocelab.measure.evidence.unconverged import RESULTS, keep_unconverged
from rocelab.measure.timeline import FibTimeline, opened_namespaces
from rocelab.outputs import REPORT, RESULT, Folder, Place, results_folder
from rocelab.plan.build import plan
from rocelab.plan.fabric import Fabric
from rocelab.progress import Progress, ProgressSink, no_progress
from rocelab.report.html import EVIDENCE, drawings, render_html
from rocelab.results.drill import DrillResult, PhaseRun, conclude
from rocelab.runtime.convergence import convergence_timeout_s
from rocelab.runtime.lab import Lab
from rocelab.runtime.providers import NodeProvider
from rocelab.spec.load import load_spec
from rocelab.spec.reference import named_by
from rocelab.units import format_duration

MAX_REPEATS = 1000


def run_drill(
    path: Path,
    *,
    repeats: int = 1,
    retries: int = RETRIES,
    out: Path | None = None,
    overwrite: bool = False,
    dilation: float | None = None,
    progress: ProgressSink = no_progress,
    use: LabUse = fresh,
    provider: NodeProvider | None = None,
    lab: Lab | None = None,
    on_result: Callable[[DrillResult], object] = lambda result: None,
) -> DrillResult:
    """Run the drill in the file `path`, `repeats` times on one lab, and return its result. Up to
    `retries` invalid repeats are repeated.

    The lab is brought up for it and taken down after it, also after an error or interrupt; with
    `use=kept(...)` it stays up, and is used if it is up already. `provider` makes its nodes. `lab`
    is a lab that is up, to run the drill on instead of its own, with `use=kept(...)`. `out`
    is a folder, made if missing, for `result.json` and `report.html`; with `overwrite` these may
    exist and are replaced. `dilation` replaces that of the drill and of its lab. `on_result` gets
    the result before it is written.

    Raises InputError (SpecError for a file) if the drill, its lab or `out` cannot be used, or a lab
    of that name is up; MachineError if this machine cannot run it; ExpectationError if the lab does
    not converge, at first or after a fault.
    """
    if not 1 <= repeats <= MAX_REPEATS:
        raise InputError(f"{repeats} repeats asked for", hint=f"ask for 1 to {MAX_REPEATS}")
    drill = load_drill(path)
    if dilation is not None:
        drill = _dilated(drill, dilation)
    chosen = planned_lab(drill, path, provider) if lab is None else lab
    drill, notes = _as_allowed(drill, chosen)
    phases = [_planned(chosen, drill, phase) for phase in drill.phases]
    need_root("a lab")
    with nullcontext() if out is None else results_folder(out, overwrite=overwrite) as folder:
        evidence = None if folder is None else folder / EVIDENCE
        keep_unconverged(chosen, folder or RESULTS)
        if folder is not None and overwrite:
            folder.remove(EVIDENCE)
        concluded = _run(chosen, drill, phases, notes, repeats, retries, evidence, progress, use)
        on_result(concluded)
        if folder is not None:
            _write(concluded, folder, progress)
    return concluded


def planned_lab(drill: DrillSpec, path: Path, provider: NodeProvider | None = None) -> Lab:
    """The drill's lab, with the drill's dilation if it has one.

    Raises InputError, and SpecError with every problem of the lab's file.
    """
    file = lab_of(drill, path)
    with named_by(path, file):
        spec = load_spec(file)
    if drill.dilation is not None:
        spec = spec.model_copy(update={"dilation": drill.dilation})
    return Lab(plan(spec), provider)


def planned_faults(fabric: Fabric, phase: PhaseSpec) -> tuple[Timed, ...]:
    """Every single fault of a phase with its times. Raises InputError if one does not fit the lab,
    or a campaign draws one that ends after the probes."""
    faults = expand(fabric, phase.faults)
    for timed in faults:
        timed.spec.resolve(fabric)
        last_ns = timed.begins_ns if timed.ends_ns is None else timed.ends_ns
        probes = phase.probes
        if probes is not None and last_ns > probes.duration - phase.measure.sustained:
            raise InputError(
                f"{timed.spec.kind} at {format_duration(timed.begins_ns)} changes the lab as late "
                f"as {format_duration(last_ns)}, and the traffic ends at "
                f"{format_duration(probes.duration)}",
                hint="lengthen traffic.duration, or give the campaign fewer faults",
            )
    return faults


def _as_allowed(drill: DrillSpec, lab: Lab) -> tuple[DrillSpec, tuple[str, ...]]:
    """The drill with only what may be done to the lab, and notes of what was left out: faults alone
    may change a lab that was adopted. Raises InputError for a phase with seeds of its own."""
    if lab.fabric.observed is None:
        return drill, ()
    if any(phase.seed is not None for phase in drill.phases):
        raise InputError(
            f"drill {drill.name} gives switches other hash seeds, and lab {lab.name} was adopted",
            hint="only faults change an adopted lab: remove `seed` in a copy of the drill",
        )
    left_out = []
    if any(phase.measure.stages for phase in drill.phases):
        left_out.append("stages, for which every daemon would trace")
    if any(phase.compare_hashing for phase in drill.phases):
        left_out.append("compare_hashing, for which switches would get other seeds")
    phases = tuple(
        phase.model_copy(
            update={
                "measure": phase.measure.model_copy(update={"stages": False}),
                "compare_hashing": (),
            }
        )
        for phase in drill.phases
    )
    notes = tuple(f"done without {what}: the lab was adopted" for what in left_out)
    return drill.model_copy(update={"phases": phases}), notes


def _dilated(drill: DrillSpec, dilation: float) -> DrillSpec:
    """The drill with another dilation. Raises InputError for a drill that only sends probes."""
    if any(phase.jobs for phase in drill.phases):
        return drill.model_copy(update={"dilation": dilation})
    raise InputError(
        f"--dilation with drill {drill.name}, whose probes are sent at the lab's own clock",
        hint="if this machine cannot carry them, lower traffic.flows or traffic.rate_pps in a copy "
        "of its file",
    )


def _run(
    lab: Lab,
    drill: DrillSpec,
    phases: Sequence[_Phase],
    notes: tuple[str, ...],
    repeats: int,
    retries: int,
    evidence: Place | None,
    progress: ProgressSink,
    use: LabUse,
) -> DrillResult:
    with use(lab, progress) as lab:
        environment = environment_of(lab)
        measured = measure_valid(
            repeats,
            retries,
            lambda which: _run_phases(lab, phases, which, evidence, progress),
            lambda runs: all(run.valid for run in runs),
        )
    return conclude(
        drill=drill.model_dump(mode="json", exclude_none=True),
        lab=lab.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        dilation=lab.fabric.spec.dilation,
        notes=(*lab.notes, *notes),
        repeats=measured,
        expectations={phase.name: phase.expect.expectations() for phase in drill.phases},
        probes={
            phase.name: probe_plan(lab.fabric, phase, phase.probes)
            for phase in drill.phases
            if phase.probes is not None
        },
    )


@dataclass(frozen=True, slots=True)
class _Phase:
    """A phase that fits the lab. `alone`: it is the whole drill."""

    spec: PhaseSpec
    faults: tuple[Timed, ...]
    alone: bool


def _planned(lab: Lab, drill: DrillSpec, phase: PhaseSpec) -> _Phase:
    """Raises InputError if a job, a flow or a fault does not fit; it names the phase if there are
    several."""
    alone = len(drill.phases) == 1
    try:
        fabric = under(lab, phase)
        faults = planned_faults(fabric, phase)
        if phase.probes is not None:
            probe_flows(fabric, phase.probes)
        else:
            plan_jobs(fabric, phase.jobs)
    except InputError as error:
        if alone:
            raise
        raise InputError(f"phase {phase.name}: {error.message}", hint=error.hint) from error
    return _Phase(phase, faults, alone)


def _run_phases(
    lab: Lab,
    phases: Sequence[_Phase],
    which: str,
    evidence: Place | None,
    progress: ProgressSink,
) -> list[PhaseRun]:
    runs: list[PhaseRun] = []
    for phase in phases:

        def shown(step: Progress, name: str = phase.spec.name) -> None:
            progress(Progress(f"{name}{which}: {step.stage}", step.done, step.total))

        folder = evidence if evidence is None or phase.alone else evidence / phase.spec.name
        runs.append(_run_phase(lab, phase, runs, folder, shown))
    return runs


def _run_phase(
    lab: Lab,
    phase: _Phase,
    before: Sequence[PhaseRun],
    evidence: Place | None,
    progress: ProgressSink,
) -> PhaseRun:
    spec, probes = phase.spec, phase.spec.probes
    with ExitStack() as stack:
        # The effects of a phase's faults and conditions on routes have ended when the next one
        # begins.
        netns_of = stack.enter_context(opened_namespaces(lab, lab.fabric.switches))
        fib = stack.enter_context(FibTimeline(lab, netns_of))
        with conditions(lab, spec, progress):
            here = Lab(under(lab, spec), lab.runtime.provider)
            if probes is not None:
                run = PhaseRun(
                    spec.name,
                    probes=run_probe_phase(
                        here, spec, probes, phase.faults, fib, netns_of, evidence, progress
                    ),
                )
            else:
                run = PhaseRun(
                    spec.name,
                    jobs=run_job_phase(here, spec, phase.faults, fib, before, evidence, progress),
                )
        if spec.faults:
            fib.wait_until_whole(convergence_timeout_s(lab.fabric))
    return run


def _write(result: DrillResult, out: Folder, progress: ProgressSink) -> None:
    progress(Progress("report", 0, 2))
    out.replace(RESULT, to_json(result))
    progress(Progress("report", 1, 2))
    out.replace(REPORT, render_html(result))
    for name, drawing in drawings(result):
        out.replace(name, drawing)
    progress(Progress("report", 2, 2))
