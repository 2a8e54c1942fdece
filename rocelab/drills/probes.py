"""A phase of probes: flows at a constant rate, undisturbed under each seed plan, then during
faults.

The lab must have the phase's conditions. The result is a `ProbeRun`. The phase begins and ends with
complete FIBs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace

from rocelab.base.outputs import OutputPlace
from rocelab.base.progress import Progress, ProgressSink
from rocelab.drills.crossing import crossing_flows
from rocelab.drills.drill_spec import HASHING_NS
from rocelab.drills.hashing import hashing_run, plan_name, reseeded, seeds_of
from rocelab.drills.plan import ProbePhase
from rocelab.lab.convergence import convergence_timeout_s, wait_for_bfd
from rocelab.lab.lab import RunningLab
from rocelab.linux import settings as kernel
from rocelab.linux.fibtable import Fib
from rocelab.observe.timeline import FibTimeline
from rocelab.results.drill import ProbePlan, in_both_clocks
from rocelab.results.probes import HashingRun, ProbeRun
from rocelab.runs.probes import FaultedRun, ProbeSettings
from rocelab.traffic.session import TrafficSession
from rocelab.traffic.taps import Taps
from rocelab.wire.filters import probe_filter

NS_PER_S = 10**9
PROGRESS_STEP_NS = 500_000_000


def run_probe_phase(
    lab: RunningLab,
    phase: ProbePhase,
    fib: FibTimeline,
    netns_of: Mapping[str, int],
    evidence: OutputPlace | None,
    progress: ProgressSink,
) -> ProbeRun:
    """Send the phase's probes. `fib` records the lab's tables, `netns_of` has the namespaces of its
    switches; `evidence` is the folder for bundles. Raises as `FaultedRun` does."""
    traffic, spec = phase.traffic, phase.spec
    settings = ProbeSettings(
        spec.measure.method,
        traffic.warmup,
        spec.measure.event_window,
        spec.measure.stages,
        spec.health,
        evidence,
    )
    timeout_s = convergence_timeout_s(lab.fabric)
    tables = fib.wait_until_whole(timeout_s)
    wait_for_bfd(lab.fabric, lab.node, timeout_s, progress)
    if spec.crossing and phase.unpredicted is None:
        flows = crossing_flows(lab.fabric, phase, tables.__getitem__)
        phase = replace(phase, flows=flows)
    hashing, problems = _compare_hashing(lab, phase, netns_of, tables, progress)
    with FaultedRun(lab, phase.flows, settings, fib, phase.faults, phase.fabric) as run:
        end_ns = run.zero_ns + traffic.duration
        wait = _waiter("probes", run.start_ns, end_ns, progress)
        run.carry_out(wait)
        wait(end_ns)
        return run.finish(hashing, problems)


def probe_plan(phase: ProbePhase) -> ProbePlan:
    """How a phase's probes are measured, and its settings, in both clocks; faults are numbered if
    there are several."""
    traffic, spec = phase.traffic, phase.spec
    times = {}
    for number, fault in enumerate(spec.faults, 1):
        which = f" {number}" if len(spec.faults) > 1 else ""
        times[f"fault{which} after the start of counting"] = fault.at
        if fault.lasts is not None:
            times[f"fault{which} lasts"] = fault.lasts
    rate_pps = traffic.rate_pps
    times["packet interval of a flow"] = NS_PER_S // rate_pps
    rates = {"rate of a flow": rate_pps, "rate of all flows": rate_pps * traffic.flows}
    clocks = in_both_clocks(phase.fabric.spec.dilation, times, rates)
    return ProbePlan(spec.measure.method, clocks)


def _compare_hashing(
    lab: RunningLab,
    phase: ProbePhase,
    netns_of: Mapping[str, int],
    fibs: Mapping[str, Fib],
    progress: ProgressSink,
) -> tuple[list[HashingRun], tuple[str, ...]]:
    """Run undisturbed probes under the phase's own seeds and every other plan to compare."""
    fabric = phase.fabric
    own_seed = fabric.spec.hashing.seed
    runs: list[HashingRun] = []
    problems: tuple[str, ...] = ()
    # A kernel without seeds has one hash for all, and an adopted lab keeps its own: there is
    # nothing to compare.
    settable = kernel.seeds_supported() and not fabric.is_adopted
    others = (
        [other for other in phase.spec.compare_hashing if other != own_seed] if settable else []
    )
    for seed in (own_seed, *others):
        seeded = reseeded(fabric, seed)
        with (
            seeds_of(seeded, fabric, netns_of) if settable else nullcontext(),
            Taps(fabric, netns_of, fabric.trunks, probe_filter(fabric.family)) as taps,
            TrafficSession(fabric, lambda name: lab.node(name).netns, phase.flows) as session,
        ):
            start_ns = session.start()
            end_ns = start_ns + HASHING_NS
            _waiter(f"flows under {plan_name(seed)} seeds", start_ns, end_ns, progress)(end_ns)
            traffic = session.stop()
            counted = taps.read()
        run, why_not = hashing_run(seeded, seed == own_seed, counted, traffic, fibs)
        runs.append(run)
        problems += why_not
    return runs, problems


def _waiter(name: str, start_ns: int, end_ns: int, sink: ProgressSink) -> Callable[[int], None]:
    """A `wait_until` that shows the progress from `start_ns` to `end_ns`."""
    total = (end_ns - start_ns) // PROGRESS_STEP_NS

    def wait(instant_ns: int) -> None:
        while True:
            now_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)
            done = max(0, (min(now_ns, end_ns) - start_ns) // PROGRESS_STEP_NS)
            sink(Progress(name, done, total))
            step_ns = start_ns + (done + 1) * PROGRESS_STEP_NS
            if instant_ns <= step_ns:
                return wait_until(instant_ns)
            wait_until(step_ns)

    return wait


def wait_until(instant_ns: int) -> None:
    """Sleep until CLOCK_REALTIME reads `instant_ns`."""
    while (left_ns := instant_ns - time.clock_gettime_ns(time.CLOCK_REALTIME)) > 0:
        time.sleep(left_ns / NS_PER_S)
