"""A drill, end to end: bring the lab up, send, break, measure, take the lab down, conclude.

In: a drill file. Out: a `DrillResult` and, where asked, `result.json` and `report.html`; a drill of
jobs is run by `rocelab.drills.phases`. Each repeat of a drill of faults first sends the flows
undisturbed under each seed plan, then sends them again and carries out the faults, and ends when
every FIB is whole again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from rocelab.agent.filters import probe_filter
from rocelab.documents import to_json
from rocelab.drills.catalog import lab_of
from rocelab.drills.faulted import FaultedRun, Settings
from rocelab.drills.hashing import hashing_run, plan_name, reseeded, seeds_of
from rocelab.drills.labuse import LabUse, fresh
from rocelab.drills.phases.run import run_job_drill
from rocelab.drills.phases.spec import JobDrillSpec
from rocelab.drills.spec import HASHING_NS, DrillSpec, load_drill
from rocelab.errors import InputError
from rocelab.faults.resolve import resolve
from rocelab.faults.schedule import Timed, expand
from rocelab.files import replace_file
from rocelab.forwarding.fib import Fib
from rocelab.jobs.flow import Flow, permutation, resolve_flow
from rocelab.kernel import settings as kernel
from rocelab.measure.attempts import RETRIES, measure_valid
from rocelab.measure.environment import read_environment
from rocelab.measure.timeline import FibTimeline, opened_namespaces
from rocelab.outputs import REPORT, RESULT, results_folder
from rocelab.plan.fabric import Fabric
from rocelab.progress import Progress, ProgressSink, no_progress
from rocelab.results import drill as results
from rocelab.results.drill import DrillResult, HashingRun, Repeat
from rocelab.results.phases import JobDrillResult
from rocelab.runtime.convergence import convergence_timeout_s, wait_for_bfd
from rocelab.runtime.lab import Lab
from rocelab.runtime.providers import NodeProvider
from rocelab.spec.reference import named_by
from rocelab.traffic.session import TrafficSession
from rocelab.traffic.taps import Taps
from rocelab.units import format_duration

NS_PER_S = 10**9
PROGRESS_STEP_NS = 500_000_000
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
    on_result: Callable[[DrillResult | JobDrillResult], object] = lambda result: None,
) -> DrillResult | JobDrillResult:
    """Run the drill in the file `path`, `repeats` times on one lab, and give its result. Up to
    `retries` invalid repeats are run again.

    The lab is brought up for it and down after it, also when it fails or is interrupted; with
    `use=kept(...)` it stays up, and is used where it is up already. `provider` makes its nodes.
    `out` is a folder, made where missing, for `result.json` and `report.html`; it has none yet, or
    `overwrite` says that they may go. `dilation` is instead of that of the drill and of its lab.
    `on_result` has the result before it is written.

    Raises InputError (SpecError for a file) where the drill, its lab or `out` can not be used, and
    where a lab of that name is up; MachineError where this machine can not run it; ExpectationError
    where the lab does not converge, at first or after a fault.
    """
    if not 1 <= repeats <= MAX_REPEATS:
        raise InputError(f"{repeats} repeats asked for", hint=f"ask for 1 to {MAX_REPEATS}")
    drill = load_drill(path)
    if dilation is not None:
        drill = _dilated(drill, dilation)
    concluded: DrillResult | JobDrillResult
    with nullcontext() if out is None else results_folder(out, overwrite=overwrite):
        if isinstance(drill, JobDrillSpec):
            concluded = run_job_drill(drill, path, repeats, retries, progress, use, provider)
        else:
            evidence = None if out is None else out / "evidence"
            if evidence is not None and overwrite and evidence.exists():
                shutil.rmtree(evidence)
            concluded = _run_fault_drill(
                drill, path, repeats, retries, evidence, progress, use, provider
            )
        on_result(concluded)
        if out is not None:
            _write(concluded, out, progress)
    return concluded


def _dilated(drill: DrillSpec | JobDrillSpec, dilation: float) -> JobDrillSpec:
    """The drill with another dilation. Raises InputError for one that sends probes."""
    if isinstance(drill, JobDrillSpec):
        return drill.model_copy(update={"dilation": dilation})
    raise InputError(
        f"--dilation with drill {drill.name}, whose probes are sent at the lab's own clock",
        hint="a machine that can not carry them carries fewer: traffic.flows and traffic.rate_pps "
        "in a copy of its file",
    )


def _run_fault_drill(
    drill: DrillSpec,
    path: Path,
    repeats: int,
    retries: int,
    evidence: Path | None,
    progress: ProgressSink,
    use: LabUse,
    provider: NodeProvider | None,
) -> DrillResult:
    file = lab_of(drill, path)
    with named_by(path, file):
        lab = Lab.planned(file, provider)
    flows = _flows(lab, drill)
    faults = planned_faults(lab.fabric, drill)
    with use(lab, progress) as lab:
        environment = read_environment(lab.installation)
        measured = _run_repeats(lab, drill, flows, faults, repeats, retries, evidence, progress)
    return results.conclude(
        drill=drill.model_dump(mode="json", exclude_none=True),
        lab=lab.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        clocks=_clocks(lab, drill),
        method=drill.measure.method,
        repeats=measured,
        expectations=drill.expect.expectations(),
    )


def planned_faults(fabric: Fabric, drill: DrillSpec) -> tuple[Timed, ...]:
    """Every single fault of the drill in time. Raises InputError where one does not fit the lab,
    or a campaign draws one that the traffic does not outlast."""
    faults = expand(fabric, drill.faults)
    latest_ns = drill.traffic.duration - drill.measure.sustained
    for timed in faults:
        resolve(fabric, timed.spec)
        last_ns = timed.begins_ns if timed.ends_ns is None else timed.ends_ns
        if last_ns > latest_ns:
            raise InputError(
                f"{timed.spec.kind} at {format_duration(timed.begins_ns)} changes the lab as late "
                f"as {format_duration(last_ns)}, and the traffic ends at "
                f"{format_duration(drill.traffic.duration)}",
                hint="lengthen traffic.duration, or give the campaign fewer faults",
            )
    return faults


def _flows(lab: Lab, drill: DrillSpec) -> tuple[Flow, ...]:
    """The drill's flows. Raises InputError where they do not fit the lab."""
    traffic = drill.traffic
    flows = permutation(lab.fabric, traffic.flows, traffic.rate_pps, traffic.payload, traffic.seed)
    for flow in flows:
        resolve_flow(lab.fabric, flow)
    return flows


def _write(result: DrillResult | JobDrillResult, out: Path, progress: ProgressSink) -> None:
    # Here and not above: who writes no report does not wait for the template engine.
    from rocelab.report.html import write_report
    from rocelab.report.phases.html import write_job_report

    progress(Progress("report", 0, 2))
    replace_file(out / RESULT, to_json(result))
    progress(Progress("report", 1, 2))
    if isinstance(result, JobDrillResult):
        write_job_report(result, out)
    else:
        write_report(result, out / REPORT)
    progress(Progress("report", 2, 2))


def _clocks(lab: Lab, drill: DrillSpec) -> results.Clocks:
    """What the drill sets, in both clocks; faults are numbered where there are several."""
    times = {}
    for number, fault in enumerate(drill.faults, 1):
        which = f" {number}" if len(drill.faults) > 1 else ""
        times[f"fault{which} after the start of counting"] = fault.at
        if fault.lasts is not None:
            times[f"fault{which} lasts"] = fault.lasts
    rate_pps = drill.traffic.rate_pps
    times["packet interval of a flow"] = NS_PER_S // rate_pps
    rates = {"rate of a flow": rate_pps, "rate of all flows": rate_pps * drill.traffic.flows}
    return results.in_both_clocks(lab.fabric.spec.dilation, times, rates)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A repeat's place in the drill, for progress."""

    which: str
    sink: ProgressSink

    def waiter(self, name: str, start_ns: int, end_ns: int) -> Callable[[int], None]:
        """A `wait_until` that shows how much of the span from `start_ns` to `end_ns` is over."""
        total = (end_ns - start_ns) // PROGRESS_STEP_NS

        def wait(instant_ns: int) -> None:
            while True:
                now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
                done = max(0, (min(now_ns, end_ns) - start_ns) // PROGRESS_STEP_NS)
                self.sink(Progress(f"{name}{self.which}", done, total))
                step_ns = start_ns + (done + 1) * PROGRESS_STEP_NS
                if instant_ns <= step_ns:
                    return wait_until(instant_ns)
                wait_until(step_ns)

        return wait


def _run_repeats(
    lab: Lab,
    drill: DrillSpec,
    flows: Sequence[Flow],
    faults: Sequence[Timed],
    repeats: int,
    retries: int,
    evidence: Path | None,
    progress: ProgressSink,
) -> list[Repeat]:
    settings = Settings(
        drill.measure.method,
        drill.traffic.warmup,
        drill.measure.event_window,
        drill.measure.stages,
        drill.health,
        evidence,
    )
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as fib,
    ):

        def measured(which: str) -> Repeat:
            timeout_s = convergence_timeout_s(lab.fabric)
            tables = fib.wait_until_whole(timeout_s)
            wait_for_bfd(lab.fabric, lab.node, timeout_s, progress)
            stage = _Stage(which, progress)
            hashing, problems = _compare_hashing(lab, drill, flows, netns_of, tables, stage)
            with FaultedRun(lab, flows, settings, fib, faults) as run:
                end_ns = run.zero_ns + drill.traffic.duration
                wait = stage.waiter(f"drill {drill.name}", run.start_ns, end_ns)
                run.carry_out(wait)
                wait(end_ns)
                return run.finish(hashing, problems)

        return measure_valid(repeats, retries, measured, lambda repeat: repeat.valid)


def _compare_hashing(
    lab: Lab,
    drill: DrillSpec,
    flows: Sequence[Flow],
    netns_of: Mapping[str, int],
    fibs: Mapping[str, Fib],
    stage: _Stage,
) -> tuple[list[HashingRun], tuple[str, ...]]:
    """Undisturbed runs under the lab's own seeds and every other plan to compare."""
    own = lab.fabric.spec.hashing.seed
    runs: list[HashingRun] = []
    problems: tuple[str, ...] = ()
    # A kernel that takes no seed has one hash for all: there is nothing to compare it with.
    settable = kernel.seeds_supported()
    others = [other for other in drill.compare_hashing if other != own] if settable else []
    for seed in (own, *others):
        seeded = reseeded(lab.fabric, seed)
        with (
            seeds_of(seeded, lab, netns_of) if settable else nullcontext(),
            Taps(lab.fabric, netns_of, lab.fabric.sessions, probe_filter()) as taps,
            TrafficSession(lab.fabric, lambda name: lab.node(name).netns, flows) as session,
        ):
            start_ns = session.start()
            end_ns = start_ns + HASHING_NS
            stage.waiter(f"flows under {plan_name(seed)} seeds", start_ns, end_ns)(end_ns)
            traffic = session.stop()
            counted = taps.read()
        run, why_not = hashing_run(seeded, seed == own, counted, traffic, fibs)
        runs.append(run)
        problems += why_not
    return runs, problems


def wait_until(instant_ns: int) -> None:
    """Sleep until CLOCK_REALTIME reads `instant_ns`."""
    while (left_ns := instant_ns - time.clock_gettime_ns(time.CLOCK_REALTIME)) > 0:
        time.sleep(left_ns / NS_PER_S)
