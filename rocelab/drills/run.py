"""Runs a drill end to end: brings the lab up, runs the phases, takes the lab down, evaluates the
result.

The result is a `DrillResult` and, on request, `result.json` and `report.html`. Everything is
planned before the lab comes up, so that errors of the drill come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from rocelab.base.documents import to_json
from rocelab.base.errors import InputError
from rocelab.base.outputs import REPORT, RESULT, Folder, OutputPlace, results_folder
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.drills.conditions import conditions
from rocelab.drills.drill_spec import DrillSpec, load_drill
from rocelab.drills.jobs import run_job_phase
from rocelab.drills.labuse import LabUse, fresh
from rocelab.drills.plan import PlannedDrill, PlannedPhase, ProbePhase, lab_spec, plan_drill
from rocelab.drills.probes import probe_plan, run_probe_phase
from rocelab.lab.convergence import convergence_timeout_s
from rocelab.lab.lab import Lab, RunningLab, as_it_runs
from rocelab.lab.providers import NodeProvider
from rocelab.labfile.catalog import DRILLS, find
from rocelab.linux.rights import need_root
from rocelab.observe.environment import environment_of
from rocelab.observe.evidence.unconverged import RESULTS, keep_unconverged
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.report.drill import EVIDENCE, drawings, drill_document
from rocelab.report.renderers.page import html
from rocelab.results.drill import DrillResult, PhaseRun, conclude
from rocelab.results.environment import Environment
from rocelab.runs.attempts import RETRIES, measure_valid

MAX_REPEATS = 1000


def run_drill(
    file: str | Path,
    *,
    repeats: int = 1,
    retries: int = RETRIES,
    out: Path | None = None,
    overwrite: bool = False,
    dilation: float | None = None,
    progress: ProgressSink = no_progress,
    use: LabUse = fresh,
    provider: NodeProvider | None = None,
    lab: RunningLab | None = None,
    on_result: Callable[[DrillResult], object] = lambda result: None,
) -> DrillResult:
    """Run a drill, of a name or a file, `repeats` times on one lab, and return its result. Up to
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
    path = find(file, DRILLS) if isinstance(file, str) else file
    drill = load_drill(path)
    if dilation is not None:
        drill = _dilated(drill, dilation)
    chosen = Lab(lab.fabric) if lab else Lab(plan(lab_spec(drill, path)), provider)
    planned = plan_drill(drill, _as_it_runs(chosen.fabric))
    need_root("a lab")
    with nullcontext() if out is None else results_folder(out, overwrite=overwrite) as folder:
        evidence = None if folder is None else folder / EVIDENCE
        keep_unconverged(chosen, folder or RESULTS)
        if folder is not None and overwrite:
            folder.remove(EVIDENCE)
        with use(chosen, progress) as running:
            environment = environment_of(running)
            runs = measure_valid(
                repeats,
                retries,
                lambda which: _run_phases(running, planned, which, evidence, progress),
                lambda runs: all(run.valid for run in runs),
            )
        result = _concluded(planned, environment, running.notes, runs)
        on_result(result)
        if folder is not None:
            _write(result, folder, progress)
    return result


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
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as fib,
    ):
        with conditions(lab, phase, netns_of, progress):
            if isinstance(phase, ProbePhase):
                probes = run_probe_phase(lab, phase, fib, netns_of, evidence, progress)
                run = PhaseRun(phase.name, probes=probes)
            else:
                jobs = run_job_phase(lab, phase, fib, before, evidence, progress)
                run = PhaseRun(phase.name, jobs=jobs)
        # The effects of a phase's faults and conditions on routes have ended when the next one
        # begins.
        if phase.faults:
            fib.wait_until_whole(convergence_timeout_s(lab.fabric))
    return run


def _concluded(
    drill: PlannedDrill,
    environment: Environment,
    notes: Sequence[str],
    repeats: Sequence[Sequence[PhaseRun]],
) -> DrillResult:
    spec = drill.fabric.spec
    return conclude(
        drill=drill.spec.model_dump(mode="json", exclude_none=True),
        lab=spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        dilation=spec.dilation,
        notes=(*notes, *drill.notes),
        repeats=repeats,
        expectations={phase.name: phase.spec.expect.expectations() for phase in drill.phases},
        probes={
            phase.name: probe_plan(phase) for phase in drill.phases if isinstance(phase, ProbePhase)
        },
    )


def _write(result: DrillResult, out: Folder, progress: ProgressSink) -> None:
    progress(Progress("report", 0, 2))
    out.replace(RESULT, to_json(result))
    progress(Progress("report", 1, 2))
    out.replace(REPORT, html(drill_document(result)))
    for name, drawing in drawings(result):
        out.replace(name, drawing)
    progress(Progress("report", 2, 2))
