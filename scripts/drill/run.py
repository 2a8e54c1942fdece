"""A drill, end to end: bring the lab up, send, break, measure, take the lab down, conclude.

In: a drill file. Out: a `DrillResult` and, where asked, `result.json` and `report.html`; a drill of
jobs is run by `scripts.drill.phases`. Each repeat of a drill of faults first sends the flows
undisturbed under each seed plan, then sends them again and carries out the faults, and ends when
every FIB is whole again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

from labs.errors import InputError
from labs.forwarding.fib import Fib
from labs.lab import Lab
from labs.runtime import kernel
from labs.runtime.base import Progress, ProgressSink, no_progress
from labs.runtime.convergence import convergence_timeout_s
from scripts.convergence import FlowSamples
from scripts.documents import to_json
from scripts.drill import result as results
from scripts.drill.catalog import lab_of
from scripts.drill.environment import read_environment
from scripts.drill.faults import fault_problems, inject, wait_until
from scripts.drill.fidelity import judged, stolen_cpu_s
from scripts.drill.hashing import hashing_run, plan_name, reseeded, seeds_of
from scripts.drill.phases.result import JobDrillResult
from scripts.drill.phases.run import run_job_drill
from scripts.drill.phases.spec import JobDrillSpec
from scripts.drill.result import DrillResult, HashingRun, Repeat, Timeline, measure_repeat
from scripts.drill.spec import DrillSpec, load_drill
from scripts.drill.timeline import FibTimeline, opened_namespaces
from scripts.taps import Taps
from traffic.filters import probe_filter
from traffic.flow import Flow, permutation, resolve_flow
from traffic.result import FlowRecord, TrafficResult
from traffic.session import TrafficSession
from traffic.wire import ROCE_PORT

NS_PER_S = 10**9
HASHING_NS = NS_PER_S
"""How long undisturbed traffic runs under each seed plan: flows hash alike from the start."""

PROGRESS_STEP_NS = 500_000_000
MAX_REPEATS = 1000


def run_drill(
    path: Path,
    *,
    repeats: int = 1,
    out: Path | None = None,
    progress: ProgressSink = no_progress,
) -> DrillResult | JobDrillResult:
    """Run the drill in the file `path`, `repeats` times on one lab, and give its result.

    The lab is brought up for it and down after it, also when it fails or is interrupted. `out` is
    a folder, made where missing, for `result.json` and `report.html`.

    Raises InputError (SpecError for a file) where the drill, its lab or `out` can not be used, and
    where a lab of that name is up; MachineError where this machine can not run it; ExpectationError
    where the lab does not converge, at first or after a fault.
    """
    if not 1 <= repeats <= MAX_REPEATS:
        raise InputError(f"{repeats} repeats asked for", hint=f"ask for 1 to {MAX_REPEATS}")
    drill = load_drill(path)
    if out is not None:
        _make_folder(out)
    concluded: DrillResult | JobDrillResult
    if isinstance(drill, JobDrillSpec):
        concluded = run_job_drill(drill, path, repeats, progress)
    else:
        concluded = _run_fault_drill(drill, path, repeats, progress)
    if out is not None:
        _write(concluded, out, progress)
    return concluded


def _run_fault_drill(
    drill: DrillSpec, path: Path, repeats: int, progress: ProgressSink
) -> DrillResult:
    lab = Lab.planned(lab_of(drill, path))
    flows = _flows(lab, drill)
    for fault in drill.faults:
        fault.find(lab.fabric)
    environment = read_environment()
    lab.up(progress)
    try:
        measured = _run_repeats(lab, drill, flows, repeats, progress)
    finally:
        lab.down(progress)
    return results.conclude(
        drill=drill.model_dump(mode="json", exclude_none=True),
        lab=lab.fabric.spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        clocks=_clocks(lab, drill),
        method=drill.measure.method,
        repeats=measured,
        expectations=drill.expect.expectations(),
    )


def _flows(lab: Lab, drill: DrillSpec) -> tuple[Flow, ...]:
    """The drill's flows. Raises InputError where they do not fit the lab."""
    traffic = drill.traffic
    flows = permutation(lab.fabric, traffic.flows, traffic.rate_pps, traffic.payload, traffic.seed)
    for flow in flows:
        resolve_flow(lab.fabric, flow)
    return flows


def _make_folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"results can not be written to {out}: {error.strerror}", hint="name another folder"
        ) from None


def _write(result: DrillResult | JobDrillResult, out: Path, progress: ProgressSink) -> None:
    # Here and not above: who writes no report does not wait for the template engine.
    from report.html import write_report
    from report.phases.html import write_job_report

    progress(Progress("report", 0, 2))
    (out / "result.json").write_text(to_json(result), encoding="utf-8")
    progress(Progress("report", 1, 2))
    if isinstance(result, JobDrillResult):
        write_job_report(result, out)
    else:
        write_report(result, out / "report.html")
    progress(Progress("report", 2, 2))


def _clocks(lab: Lab, drill: DrillSpec) -> results.Clocks:
    """What the drill sets, in both clocks; faults are numbered where there are several."""
    times = {}
    for number, fault in enumerate(drill.faults, 1):
        which = f" {number}" if len(drill.faults) > 1 else ""
        times[f"fault{which} after the start of counting"] = fault.at
        times[f"carrier{which} down for"] = fault.down_for
    rate_pps = drill.traffic.rate_pps
    times["packet interval of a flow"] = NS_PER_S // rate_pps
    rates = {"rate of a flow": rate_pps, "rate of all flows": rate_pps * drill.traffic.flows}
    return results.in_both_clocks(lab.fabric.spec.dilation, times, rates)


@dataclass(frozen=True, slots=True)
class _Stage:
    """A repeat's place in the drill, for progress: `run` of `runs` in this repeat."""

    repeat: int
    repeats: int
    sink: ProgressSink

    def waiter(self, name: str, start_ns: int, end_ns: int) -> Callable[[int], None]:
        """A `wait_until` that shows how much of the span from `start_ns` to `end_ns` is over."""
        which = f" (repeat {self.repeat} of {self.repeats})" if self.repeats > 1 else ""
        total = (end_ns - start_ns) // PROGRESS_STEP_NS

        def wait(instant_ns: int) -> None:
            while True:
                now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
                done = max(0, (min(now_ns, end_ns) - start_ns) // PROGRESS_STEP_NS)
                self.sink(Progress(f"{name}{which}", done, total))
                step_ns = start_ns + (done + 1) * PROGRESS_STEP_NS
                if instant_ns <= step_ns:
                    return wait_until(instant_ns)
                wait_until(step_ns)

        return wait


def _run_repeats(
    lab: Lab, drill: DrillSpec, flows: Sequence[Flow], repeats: int, progress: ProgressSink
) -> list[Repeat]:
    timeout_s = convergence_timeout_s(lab.fabric)
    measured = []
    with (
        opened_namespaces(lab, lab.fabric.switches) as netns_of,
        FibTimeline(lab, netns_of) as timeline,
    ):
        fibs = timeline.wait_until_whole(timeout_s)
        for number in range(1, repeats + 1):
            stage = _Stage(number, repeats, progress)
            hashing, problems = _compare_hashing(lab, drill, flows, netns_of, fibs, stage)
            started_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            stolen_s = stolen_cpu_s()
            faulted, traffic, more = _run_faults(lab, drill, flows, stage)
            stolen_s = stolen_cpu_s() - stolen_s
            fibs = timeline.wait_until_whole(timeout_s)
            ended_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            samples = {
                _named(lab, record.flow): _samples(record, faulted) for record in traffic.flows
            }
            repeat = measure_repeat(
                samples,
                faulted,
                drill.measure.method,
                fib=timeline.changes(started_ns, ended_ns),
                hashing=hashing,
                problems=(*problems, *traffic.problems, *more, *_watch_problems(timeline)),
            )
            measured.append(judged(repeat, samples, faulted, traffic, stolen_s))
    return measured


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


def _run_faults(
    lab: Lab, drill: DrillSpec, flows: Sequence[Flow], stage: _Stage
) -> tuple[Timeline, TrafficResult, tuple[str, ...]]:
    """The faulted run: when what happened, what was sent and received, and why not to trust it."""
    with TrafficSession(lab.fabric, lambda name: lab.node(name).netns, flows) as session:
        start_ns = session.start()
        zero_ns = start_ns + drill.traffic.warmup
        end_ns = zero_ns + drill.traffic.duration
        wait = stage.waiter(f"drill {drill.name}", start_ns, end_ns)
        injected = inject(lab, drill.faults, zero_ns, wait)
        wait(end_ns)
        traffic = session.stop()
    events = tuple(one.event for one in injected)
    timeline = Timeline(events, zero_ns, end_ns, drill.measure.event_window)
    return timeline, traffic, fault_problems(injected)


def _watch_problems(timeline: FibTimeline) -> tuple[str, ...]:
    lost = timeline.overflowed()
    if not lost:
        return ()
    return (f"not valid because FIB events of {', '.join(lost)} were lost",)


def _named(lab: Lab, flow: Flow) -> results.Flow:
    ends = resolve_flow(lab.fabric, flow)
    return results.Flow(
        name=f"f{flow.id + 1}",
        source=flow.source,
        destination=flow.destination,
        source_ip=ends.source_ip,
        destination_ip=ends.destination_ip,
        source_port=flow.sport,
        destination_port=ROCE_PORT,
    )


def _samples(record: FlowRecord, timeline: Timeline) -> FlowSamples:
    """The packets sent in the counted time, and the arrivals of those."""
    sent = (record.sent_ns >= timeline.start_ns) & (record.sent_ns < timeline.end_ns)
    received = (record.send_ns >= timeline.start_ns) & (record.send_ns < timeline.end_ns)
    return FlowSamples(
        sent_seq=record.sent_seq[sent],
        sent_ns=record.sent_ns[sent],
        received_seq=record.received_seq[received],
        receive_ns=record.receive_ns[received],
    )
