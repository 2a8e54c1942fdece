"""Measures one cell of the table: brings its lab up, causes failures one after the other, takes the
lab down.

The result is a `CellResult`, also after an error. Between two changes of the lab it waits until the
tables have reacted to the failure, or are complete again, and BFD sessions have their normal
interval.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from bench.convergence.aftermath import Aftermath, aftermath, deviations
from bench.convergence.document import (
    SCHEMA_VERSION,
    CellResult,
    Failure,
    decisive,
    figures_of,
)
from bench.convergence.plan import Cell, candidate_links, fault_spec, lab_spec
from bench.convergence.traffic import RATE_PPS, Probes, choose_probes, names_of
from bench.convergence.validity import unsound
from rocelab import ExpectationError, Lab, RocelabError, RunningLab, plan
from rocelab.base.progress import no_progress
from rocelab.drills.probes import wait_until
from rocelab.faults.base import SingleFaultSpec
from rocelab.lab.convergence import convergence_timeout_s, wait_for_bfd
from rocelab.lab.providers import provider_of
from rocelab.observe.environment import read_environment
from rocelab.observe.stages.measure import FlowRecovery, stages_of
from rocelab.observe.stages.recorder import StageRecorder
from rocelab.observe.timeline import FibTimeline, opened_namespaces
from rocelab.results.convergence import MeasurementMethod, Window
from rocelab.results.probes import ProbeRun
from rocelab.routing.frr.installation import find_installation
from rocelab.runs.probes import FaultedRun, ProbeSettings
from rocelab.sim.events.reaction import FLAP_NS, Breakage

NS_PER_S = 10**9
MS = 10**6
METHOD = MeasurementMethod(sampling_interval_ns=10 * MS, sustained_ns=500 * MS)
WARMUP_NS = 300 * MS
MARGIN_NS = 100 * MS
"""The margin beyond the validation time: the wait counts from a table's change, the method from a
packet."""

FAILURES_A_RUN = 5
"""Failures in one run of traffic. A run is valid or invalid as a whole; one run per failure would
take 50 % longer, for the start and the end of the traffic."""

TRACED = 2
QUIET_S = 0.1
SETTLE_S = 20.0
"""The time limit for tables to react to a failure, beyond the detection timer."""

LONGEST_EVENT_NS = 60 * NS_PER_S
ATTEMPTS = 3
"""Invalid runs are repeated until this many times the wanted number of failures were rejected; then
the cell has failed."""

Sink = Callable[[int], None]
"""Receives the number of completed failures."""


@dataclass(frozen=True, slots=True)
class _Scene:
    """A running lab and its planned failures."""

    cell: Cell
    lab: RunningLab
    fib: FibTimeline
    probes: Probes
    spec: SingleFaultSpec
    after: Aftermath
    ends: tuple[str, ...]


def measure_cell(cell: Cell, wanted: int, done: Sink, frr: Path | None = None) -> CellResult:
    """Bring the cell's lab up, measure `wanted` failures and a few traced ones, take it down.

    `frr` is the folder of an FRR to use instead of this machine's. An error is in the result, with
    the measurements before it. Raises MachineError if FRR is not installed, and InputError if it is
    not in `frr`.
    """
    planned = Lab(plan(lab_spec(cell)), provider_of("netns", frr=frr))
    started = time.monotonic()
    result = CellResult(
        schema_version=SCHEMA_VERSION,
        name=cell.name,
        environment=read_environment(find_installation(frr)),
        load_average=os.getloadavg(),
        lab=planned.spec.model_dump(mode="json", exclude_none=True),
        method=METHOD,
        subject="",
        flows=0,
        crossing=0,
        rate_pps=RATE_PPS,
        wanted=wanted,
        failures=(),
        traced=(),
        rejected=0,
        reasons=(),
        took_s=0.0,
        failed=None,
    )
    measuring = _Measuring(result, done)
    try:
        with planned.brought_up() as lab:
            measuring.measure(cell, lab)
    except (RocelabError, OSError, ValueError, KeyError) as error:
        # What is measured by now is kept, and the other cells are still to come.
        measuring.result = replace(measuring.result, failed=f"{type(error).__name__}: {error}")
    return replace(measuring.result, took_s=time.monotonic() - started)


class _Measuring:
    """A cell's result so far."""

    def __init__(self, result: CellResult, done: Sink) -> None:
        self.result = result
        self._done = done

    def measure(self, cell: Cell, lab: RunningLab) -> None:
        """Measure the cell. Raises ExpectationError if the machine does not carry the runs, and as
        faults do."""
        link = candidate_links(lab.fabric, cell.site)[0]
        with (
            opened_namespaces(lab, lab.fabric.switches) as netns_of,
            FibTimeline(lab, netns_of) as fib,
        ):
            tables = fib.wait_until_whole(convergence_timeout_s(lab.fabric))
            probes = choose_probes(cell, lab.fabric, tables, link)
            scene = _Scene(
                cell,
                lab,
                fib,
                probes,
                fault_spec(cell, lab.fabric, link),
                aftermath(cell, lab.fabric, link),
                (link.a.node, link.b.node),
            )
            _wait_for_bfd(lab)
            self.result = replace(self.result, flows=len(probes.flows), crossing=probes.crossing)
            for number in count():
                missing = self.result.wanted - len(self.result.failures)
                if missing <= 0:
                    break
                self._one_run(scene, min(missing, FAILURES_A_RUN), number)
            traced = _run(scene, TRACED, random.Random(f"{cell.name} traced"), traced=True)
            if not traced.repeat.problems:
                self.result = replace(self.result, traced=traced.failures)

    def _one_run(self, scene: _Scene, failures: int, number: int) -> None:
        draw = random.Random(f"{scene.cell.name} {number}")
        run = _run(scene, failures, draw, traced=False)
        result = replace(self.result, subject=run.subject)
        if run.repeat.valid:
            result = replace(result, failures=(*result.failures, *run.failures))
        else:
            result = replace(
                result,
                rejected=result.rejected + failures,
                reasons=tuple(dict.fromkeys((*result.reasons, *run.repeat.problems))),
            )
        self.result = result
        self._done(len(result.failures))
        if result.rejected > ATTEMPTS * result.wanted:
            raise ExpectationError(
                f"{result.rejected} failures were in runs that this machine did not carry: "
                f"{result.reasons[-1]}",
                hint="run it while the machine does nothing else",
            )


@dataclass(frozen=True, slots=True)
class _Run:
    repeat: ProbeRun
    failures: tuple[Failure, ...]
    subject: str


def _run(scene: _Scene, failures: int, draw: random.Random, *, traced: bool) -> _Run:
    """Cause `failures` failures during one run of traffic."""
    settings = ProbeSettings(METHOD, WARMUP_NS, LONGEST_EVENT_NS)
    recorder = StageRecorder(scene.lab) if traced else None
    waited: list[int] = []
    if recorder is not None:
        recorder.__enter__()
    try:
        with FaultedRun(scene.lab, scene.probes.flows, settings, scene.fib) as run:
            wait_until(run.zero_ns)
            for _ in range(failures):
                waited.append(_break_and_mend(scene, run, draw))
            repeat = run.finish()
            repeat = replace(repeat, problems=(*repeat.problems, *_unsound(scene, repeat)))
            first_ns = run.injector.changes[0].t_ns
            subject = run.injector.changes[0].fault.subject
    finally:
        if recorder is not None:
            recorder.__exit__(None, None, None)
    results = _failures(scene, repeat, waited)
    if recorder is not None:
        results = _with_stages(scene, repeat, results, recorder, first_ns)
    return _Run(repeat, results, subject)


def _unsound(scene: _Scene, repeat: ProbeRun) -> tuple[str, ...]:
    crossing = names_of(scene.probes.flows[: scene.probes.crossing])
    silent = scene.cell.fault.breakage is Breakage.SILENT
    return unsound(repeat, crossing, silent=silent)


def _break_and_mend(scene: _Scene, run: FaultedRun, draw: random.Random) -> int:
    """Cause one failure and repair it; return the wait before it, ns."""
    pause_ns = MARGIN_NS
    if scene.cell.fault.breakage is Breakage.SILENT:
        # Timers started when the sessions came up, in step with this loop: without a draw every
        # failure would come at the same place between two packets of the protocol.
        pause_ns += draw.randrange(scene.cell.fault.timers.period_ns)
    held = run.injector.prepare(scene.spec)
    at_ns = _now_ns() + pause_ns
    is_exact = run.injector.schedule(held, at_ns, None)
    wait_until(at_ns)
    if not is_exact:
        run.injector.inject(held)
    if scene.cell.fault.breakage is Breakage.FLAP:
        wait_until(run.injector.changes[-1].t_ns + FLAP_NS)
    else:
        _wait_for_aftermath(scene)
        _validate()
    run.injector.restore(held)
    run.injector.prove()
    scene.fib.wait_until_whole(convergence_timeout_s(scene.lab.fabric))
    _wait_for_bfd(scene.lab)
    _validate()
    return pause_ns


def _now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_REALTIME)


def _validate() -> None:
    """Let the Sustained Convergence Validation Time (RFC 6412 section 3.7.5) pass."""
    wait_until(_now_ns() + METHOD.sustained_ns + MARGIN_NS)


def _wait_for_aftermath(scene: _Scene) -> None:
    timers = scene.cell.fault.timers
    timeout_s = SETTLE_S + timers.detection_ns[1] / NS_PER_S
    scene.fib.wait_until(
        "what they should be without what failed",
        lambda fibs: deviations(scene.after, fibs),
        timeout_s,
        QUIET_S,
    )


def _wait_for_bfd(lab: RunningLab) -> None:
    wait_for_bfd(lab.fabric, lab.node, convergence_timeout_s(lab.fabric), no_progress)


def _failures(scene: _Scene, repeat: ProbeRun, waited: Sequence[int]) -> tuple[Failure, ...]:
    """The failures of a run, each with its repair. Raises ExpectationError if the changes do not
    match: too close to each other, or to the one before."""
    repairs = scene.cell.fault.breakage is not Breakage.FLAP
    expected = ["begin", "end"] * len(waited) if repairs else ["begin"] * len(waited)
    if [record.event.change for record in repeat.events] != expected:
        raise ExpectationError("changes of the lab came too close to each other to be told apart")
    step = 2 if repairs else 1
    return tuple(
        Failure(
            pause_ns,
            figures_of(repeat, step * index),
            figures_of(repeat, step * index + 1) if repairs else None,
        )
        for index, pause_ns in enumerate(waited)
    )


def _with_stages(
    scene: _Scene,
    repeat: ProbeRun,
    failures: Sequence[Failure],
    recorder: StageRecorder,
    first_ns: int,
) -> tuple[Failure, ...]:
    """The failures with their decisive switches; `first_ns` is the run's first event, in
    CLOCK_REALTIME."""
    step = len(repeat.events) // len(failures)
    begins = [first_ns + record.event.t_ns for record in repeat.events]
    ends = [*begins[1:], begins[-1] + LONGEST_EVENT_NS]
    names = names_of(scene.probes.flows)
    path_of = dict(zip(names, scene.probes.paths, strict=True))
    runs = []
    for index, one in enumerate(failures):
        begin_ns, end_ns = begins[step * index], ends[step * index]
        recoveries = [
            FlowRecovery(path_of[name], None if ns is None else begin_ns + ns)
            for name, ns in zip(one.failure.flows, one.failure.flow_convergence_ns, strict=True)
        ]
        stages = stages_of(
            begin_ns,
            Window(begin_ns, end_ns),
            recorder.records,
            scene.fib.changes(begin_ns, end_ns),
            recoveries,
        )
        decided = decisive(stages, one.failure, NS_PER_S // RATE_PPS)
        runs.append(replace(one, decisive=decided))
    return tuple(runs)
