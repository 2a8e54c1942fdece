"""Runs a drill end to end: brings the lab up, runs the phases, takes the lab down, evaluates the
result.

The result is a `DrillResult` and, on request, `result.json` and `report.html`. Everything is
planned before the lab comes up, so that errors of the drill come first. `result.json` has each
repeat as soon as it has ended: a drill that is interrupted, killed or fails leaves those it
measured, and can go on from them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rocelab.base.documents import to_json
from rocelab.base.errors import ExpectationError, InputError, RocelabError
from rocelab.base.interruption import undone
from rocelab.base.outputs import REPORT, RESULT, Folder, OutputPlace, results_folder, written_to
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.drills.conditions import conditions
from rocelab.drills.drill_spec import DrillSpec, load_drill
from rocelab.drills.jobs import run_job_phase
from rocelab.drills.labuse import LabUse, fresh
from rocelab.drills.plan import (
    PlannedDrill,
    PlannedPhase,
    ProbePhase,
    ProgramPhase,
    lab_spec,
    plan_drill,
)
from rocelab.drills.probes import probe_plan, run_probe_phase
from rocelab.drills.programs import run_program_phase
from rocelab.drills.resume import MAX_REPEATS, check_machine, earlier_result
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.lab import Lab, RunningLab, as_it_runs
from rocelab.lab.providers import NodeProvider
from rocelab.labfile.catalog import DRILLS, find
from rocelab.labfile.observed import ObservedLabSpec, with_observed
from rocelab.linux.rights import need_root
from rocelab.observe.environment import environment_of
from rocelab.observe.evidence.unconverged import RESULTS, keep_unconverged
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.report.drill import EVIDENCE, drawings, drill_document
from rocelab.report.renderers.page import html
from rocelab.results.drill import DrillResult, EndedEarly, PhaseRun, conclude
from rocelab.results.environment import Environment
from rocelab.runs.attempts import RETRIES, are_enough, measure_valid

_NOT_ENDED = EndedEarly("it had not ended when this was written", failed=False)


def run_drill(
    file: str | Path,
    *,
    repeats: int | None = None,
    retries: int = RETRIES,
    out: Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    dilation: float | None = None,
    progress: ProgressSink = no_progress,
    use: LabUse = fresh,
    provider: NodeProvider | None = None,
    lab: RunningLab | None = None,
    on_result: Callable[[DrillResult], object] = lambda result: None,
) -> DrillResult:
    """Run a drill, of a name or a file, `repeats` times (once) on one lab, and return its result.
    Up to `retries` invalid repeats are repeated.

    The lab is brought up for it and taken down after it, also after an error or interrupt; with
    `use=kept(...)` it stays up, and is used if it is up already. `provider` makes its nodes. `lab`
    is a lab that is up, to run the drill on instead of its own, with `use=kept(...)`. `out` is a
    folder, made if missing, for `result.json` and `report.html`; with `overwrite` these may exist
    and are replaced; with `resume` the drill goes on from the repeats in `out`, until as many are
    valid as were asked for then, or now; if they already are, no lab is brought up. `dilation`
    replaces that of the drill and of its lab. `on_result` gets the result before it is written,
    also that of a drill that ends early with an error, which is then raised.

    Raises InputError (SpecError for a file) if the drill, its lab or `out` cannot be used, a lab of
    that name is up, or the repeats in `out` are of another drill, lab or machine; MachineError if
    this machine cannot run it; ExpectationError if the lab does not converge, at first or after a
    fault.
    """
    if repeats is not None and not 1 <= repeats <= MAX_REPEATS:
        raise InputError(f"{repeats} repeats asked for", hint=f"ask for 1 to {MAX_REPEATS}")
    if resume and out is None:
        raise InputError("a drill goes on in the folder of its results", hint="name it as out")
    path = find(file, DRILLS) if isinstance(file, str) else file
    drill = load_drill(path)
    if dilation is not None:
        drill = _dilated(drill, dilation)
    chosen = Lab(lab.fabric) if lab else Lab(plan(lab_spec(drill, path)), provider)
    planned = plan_drill(drill, _as_it_runs(chosen.fabric))
    if not resume:
        need_root("a lab")
    opened = nullcontext() if out is None else results_folder(out, overwrite=overwrite or resume)
    with opened as folder:
        earlier = earlier_result(folder.path, planned) if resume and folder is not None else None
        evidence = None if folder is None else folder / EVIDENCE
        keep_unconverged(chosen, folder or RESULTS)
        if folder is not None and overwrite:
            folder.remove(EVIDENCE)
        measured = _Measured(planned, folder, repeats, earlier)
        if earlier is not None and are_enough(measured.runs, measured.wanted, retries, _is_valid):
            return _concluded(measured.result_of(earlier), folder, progress, on_result)
        need_root("a lab")
        try:
            with use(chosen, progress) as running:
                measured.on(running)
                measure_valid(
                    measured.wanted,
                    retries,
                    lambda which: _run_phases(running, planned, which, evidence, progress),
                    _is_valid,
                    measured.runs,
                    measured.keep,
                )
        except BaseException as error:
            if measured.runs and measured.environment is not None:
                result = measured.result(_ended_early(error))
                on_result(result)
                if folder is not None:
                    if measured.kept == len(measured.runs):
                        _write(result, folder, progress)
                    _report_kept_repeats(error, measured.kept, folder.path)
            raise
        return _concluded(measured.result(), folder, progress, on_result)


def _is_valid(repeat: Sequence[PhaseRun]) -> bool:
    return all(run.valid for run in repeat)


def _concluded(
    result: DrillResult,
    folder: Folder | None,
    progress: ProgressSink,
    on_result: Callable[[DrillResult], object],
) -> DrillResult:
    on_result(result)
    if folder is not None:
        _write(result, folder, progress)
    return result


class _Measured:
    """The repeats of a drill so far, in `folder` too if there is one."""

    def __init__(
        self,
        drill: PlannedDrill,
        folder: Folder | None,
        wanted: int | None,
        earlier: DrillResult | None,
    ) -> None:
        """earlier: the result to go on from, of which `wanted` is the default."""
        self.wanted: int = wanted or (earlier and earlier.wanted_repeats) or 1
        self.runs = [] if earlier is None else [list(repeat) for repeat in earlier.repeats]
        self.environment: Environment | None = None
        self.kept = len(self.runs)
        """How many of them the folder has."""
        self._drill, self._folder, self._earlier = drill, folder, earlier
        self._spec = drill.fabric.spec
        """With what was observed of the lab once it is up."""
        self._notes: tuple[str, ...] = ()

    def on(self, lab: RunningLab) -> None:
        """The lab is up. Raises InputError if the earlier repeats are of another machine."""
        environment = environment_of(lab)
        if self._earlier is not None and self._folder is not None:
            check_machine(self._folder.path, self._earlier, environment)
            environment = self._earlier.environment
        self.environment, self._notes = environment, lab.notes
        if isinstance(lab.spec, ObservedLabSpec):
            self._spec = with_observed(self._drill.fabric.spec, lab.spec.observed)

    def result_of(self, earlier: DrillResult) -> DrillResult:
        """The result of earlier repeats alone."""
        self.environment = earlier.environment
        self._notes = tuple(note for note in earlier.notes if note not in self._drill.notes)
        return self.result()

    def keep(self) -> None:
        """Write the repeats so far, which a killed process then leaves."""
        if self._folder is not None:
            with written_to(self._folder.path):
                self._folder.replace(RESULT, to_json(self.result(_NOT_ENDED)))
        self.kept = len(self.runs)

    def result(self, ended_early: EndedEarly | None = None) -> DrillResult:
        """The result of the repeats so far, once the lab is up."""
        if self.environment is None:
            raise ValueError("the lab has not been up")
        spec = self._spec
        phases = self._drill.phases
        return conclude(
            drill=self._drill.spec.model_dump(mode="json", exclude_none=True),
            lab=spec.model_dump(mode="json", exclude_none=True),
            environment=self.environment,
            dilation=spec.dilation,
            notes=(*self._notes, *self._drill.notes),
            repeats=self.runs,
            expectations={phase.name: phase.spec.expect.expectations() for phase in phases},
            probes={
                phase.name: probe_plan(phase) for phase in phases if isinstance(phase, ProbePhase)
            },
            programs={phase.name for phase in phases if isinstance(phase, ProgramPhase)},
            wanted_repeats=self.wanted,
            ended_early=ended_early,
        )


def _ended_early(error: BaseException) -> EndedEarly:
    if isinstance(error, RocelabError):
        return EndedEarly(error.message, error.exit_code == ExpectationError.exit_code)
    if isinstance(error, KeyboardInterrupt):
        return EndedEarly("interrupted", failed=False)
    return EndedEarly(f"a defect of rocelab: {type(error).__name__}: {error}", failed=False)


def _report_kept_repeats(error: BaseException, number: int, folder: Path) -> None:
    """Tell whoever reads the error, or the line about a signal, of the repeats that are kept."""
    if number == 0:
        return
    repeats = "the repeat" if number == 1 else f"the {number} repeats"
    kept = f"{folder} has {repeats} before it; go on with --resume {folder}"
    undone(kept)
    if isinstance(error, RocelabError):
        error.hint = f"{error.hint}; {kept}" if error.hint else kept


def _as_it_runs(fabric: Fabric) -> Fabric:
    """The fabric that the lab has once it is up on this machine."""
    spec = as_it_runs(fabric.spec)
    return fabric if spec is fabric.spec else plan(spec)


def _dilated(drill: DrillSpec, dilation: float) -> DrillSpec:
    """The drill with another dilation. Raises InputError for a drill that only sends probes."""
    if any(phase.jobs for phase in drill.phases):
        return drill.model_copy(update={"dilation": dilation})
    raise InputError(
        f"--dilation with drill {drill.name}, whose probes are sent at the lab's own clock",
        hint="if this machine cannot keep up with them, lower traffic.flows or traffic.rate_pps "
        "in a copy "
        "of its file",
    )


def _run_phases(
    lab: RunningLab,
    drill: PlannedDrill,
    which: str,
    evidence: OutputPlace | None,
    progress: ProgressSink,
) -> list[PhaseRun]:
    """One repeat; `which` is its label."""
    runs: list[PhaseRun] = []
    for phase in drill.phases:

        def of_phase(step: Progress, name: str = phase.name) -> None:
            progress(Progress(f"{name}{which}: {step.stage}", step.done, step.total))

        several = evidence is not None and len(drill.phases) > 1
        folder = evidence / phase.name if evidence is not None and several else evidence
        runs.append(_run_phase(lab, phase, runs, folder, of_phase))
    return runs


def _run_phase(
    lab: RunningLab,
    phase: PlannedPhase,
    before: Sequence[PhaseRun],
    evidence: OutputPlace | None,
    progress: ProgressSink,
) -> PhaseRun:
    started = time.monotonic()
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as fib,
    ):
        with conditions(lab, phase, netns_of, progress):
            if isinstance(phase, ProbePhase):
                probes = run_probe_phase(lab, phase, fib, netns_of, evidence, progress)
                run = PhaseRun(phase.name, probes=probes)
            elif isinstance(phase, ProgramPhase):
                programs = run_program_phase(lab, phase, evidence, progress)
                run = PhaseRun(phase.name, programs=programs)
            else:
                jobs = run_job_phase(lab, phase, fib, before, evidence, progress)
                run = PhaseRun(phase.name, jobs=jobs)
        # The effects of a phase's faults and conditions on routes have ended when the next one
        # begins.
        if phase.faults:
            fib.wait_until_whole(convergence_timeout_s(lab.fabric))
    return replace(run, seconds=round(time.monotonic() - started, 3))


def _write(result: DrillResult, out: Folder, progress: ProgressSink) -> None:
    progress(Progress("report", 0, 2))
    out.replace(RESULT, to_json(result))
    progress(Progress("report", 1, 2))
    out.replace(REPORT, html(drill_document(result)))
    for name, drawing in drawings(result):
        out.replace(name, drawing)
    progress(Progress("report", 2, 2))
