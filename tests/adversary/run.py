"""Runs a shipped drill under a disturbance and compares its result with the observer's record.

An `Outcome` has the number of valid repeats and every comparison of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from rocelab.base.errors import RocelabError
from rocelab.base.progress import ProgressSink
from rocelab.drills import jobs
from rocelab.drills.drill_spec import HASHING_NS, DrillSpec, PhaseSpec, load_drill
from rocelab.drills.labuse import fresh
from rocelab.drills.run import run_drill
from rocelab.faults.base import Timed
from rocelab.faults.schedule import expand
from rocelab.jobs.flow import permutation
from rocelab.lab.lab import Lab, RunningLab
from rocelab.labfile.catalog import DRILLS, find
from rocelab.results.drill import DrillResult
from rocelab.results.job import JobReport
from rocelab.results.probes import ProbeRun, Timeline, probe_run
from rocelab.runs import probes
from rocelab.runs.attempts import RETRIES
from rocelab.runs.jobs import MeasuredJobs, run_planned
from tests.adversary.disturbances import DISTURBANCES, Scene
from tests.adversary.jobs import compare_report
from tests.adversary.observer import Observer, PortChange, Taken, slots_of
from tests.adversary.truth import Comparison, compare_repeat, on_one_clock, ports_on_one_clock

NS_PER_S = 10**9
SPARE_S = 4
"""Extra traffic time beyond a drill's file, for a run that its machine delays."""

JOB_SLOTS = 150_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a drill. `faults`: repeats of phases with faults; `idle`: those of them that
    are invalid because a fault had no visible effect. `unseen`: valid repeats that the
    observer cannot judge because it lost packets itself. `refused`: the drill ended with an error
    and no figure."""

    repeats: int
    valid: int
    comparisons: tuple[Comparison, ...]
    faults: int = 0
    idle: int = 0
    problems: tuple[str, ...] = ()
    unseen: int = 0
    refused: str | None = None

    @property
    def wrong(self) -> tuple[Comparison, ...]:
        return tuple(comparison for comparison in self.comparisons if not comparison.right)


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """A repeat as the product measured it, and its packets."""

    timeline: Timeline
    taken: Taken


@dataclass(frozen=True, slots=True, eq=False)
class _SeenPhase:
    """A phase's reports, and its packets."""

    reports: tuple[JobReport, ...]
    taken: Taken


def run_against(drill: str, disturbance: str, seed: int) -> Outcome:
    """Run a drill under a disturbance, and compare its valid repeats."""
    path = find(drill, DRILLS)
    spec = load_drill(path)
    seen: list[_Seen] = []
    phases: list[_SeenPhase] = []
    scenes: list[Scene] = []
    ports: list[PortChange] = []

    @contextmanager
    def watched(lab: Lab, progress: ProgressSink) -> Iterator[RunningLab]:
        with fresh(lab, progress) as running, Observer(running, _slots(running, spec)) as observer:
            scene = Scene(running, faults_of(running, spec), seed)
            scenes.append(scene)
            with DISTURBANCES[disturbance](scene), _noting(observer, seen, phases):
                yield running
            ports.extend(observer.port_changes())

    # The control tries again, as a user's drill does; what is disturbed is expected to fail often.
    retries = RETRIES if disturbance == "none" else 0
    try:
        result = run_drill(path, retries=retries, use=watched)
    except RocelabError as error:
        return Outcome(1, 0, (), refused=error.message)
    steps = scenes[0].steps
    faulty = {phase.name for phase in spec.phases if phase.faults}
    return _compared(result, faulty, seen, phases, ports_on_one_clock(ports, steps), steps)


def faults_of(lab: RunningLab, spec: DrillSpec) -> tuple[Timed, ...]:
    """Every single fault of a drill, of all its phases."""
    return tuple(fault for phase in spec.phases for fault in expand(lab.fabric, phase.faults))


def _slots(lab: RunningLab, spec: DrillSpec) -> Mapping[str, int]:
    servers = [node.name for node in lab.fabric.servers]
    of_phases = [_slots_of(lab, phase, servers) for phase in spec.phases]
    return {server: max(slots[server] for slots in of_phases) for server in servers}


def _slots_of(lab: RunningLab, phase: PhaseSpec, servers: Sequence[str]) -> Mapping[str, int]:
    traffic = phase.probes
    if traffic is None:
        return dict.fromkeys(servers, JOB_SLOTS)
    hashing_ns = HASHING_NS * (1 + len(phase.compare_hashing))
    seconds = (traffic.warmup + traffic.duration + hashing_ns) / NS_PER_S + SPARE_S
    flows = permutation(lab.fabric, traffic.flows, traffic.rate_pps, traffic.payload, traffic.seed)
    return {
        server: slots_of(
            seconds
            * traffic.rate_pps
            * (
                traffic.flows  # of which any may take the place of another
                if phase.crossing
                else sum(server in (f.source, f.destination) for f in flows)
            )
        )
        for server in servers
    }


@contextmanager
def _noting(observer: Observer, seen: list[_Seen], phases: list[_SeenPhase]) -> Iterator[None]:
    """Record each repeat's instants as the product passes them to its measurement, because results
    have them only relative to the first event. The packets are those up to then, when the traffic
    is over. For jobs, those of each phase."""

    def noted(samples: Any, timeline: Timeline, *rest: Any, **named: Any) -> ProbeRun:
        seen.append(_Seen(timeline, observer.take()))
        return probe_run(samples, timeline, *rest, **named)

    def phase(*arguments: Any, **named: Any) -> MeasuredJobs:
        observer.take()
        measured = run_planned(*arguments, **named)
        phases.append(_SeenPhase(measured.reports, observer.take()))
        return measured

    with (
        patch.object(probes, "probe_run", noted),
        patch.object(jobs, "run_planned", phase),
    ):
        yield


def _compared(
    result: DrillResult,
    faulty: Collection[str],
    seen: Sequence[_Seen],
    phases: Sequence[_SeenPhase],
    ports: Sequence[PortChange],
    steps: Sequence[tuple[int, int, int]],
) -> Outcome:
    """Each run of a phase counts as a repeat: it is valid or not by itself."""
    runs = [run for repeat in result.repeats for run in repeat]
    methods = {phase.name: phase.probes.method for phase in result.phases if phase.probes}
    of_probes, of_jobs = iter(seen), iter(phases)
    comparisons: list[Comparison] = []
    unseen = 0
    for run in runs:
        if run.probes is not None:
            one = next(of_probes)
            if run.valid and not one.taken.lost:
                packets = on_one_clock(one.taken.packets, steps)
                comparisons += compare_repeat(
                    run.probes, one.timeline, methods[run.phase], packets, ports
                )
            unseen += run.valid and one.taken.lost > 0
        else:
            other = next(of_jobs)
            for report in other.reports if run.valid and not other.taken.lost else ():
                comparisons += compare_report(report, other.taken.packets)
            unseen += run.valid and other.taken.lost > 0
    return Outcome(
        len(runs),
        sum(run.valid for run in runs),
        tuple(comparisons),
        sum(run.phase in faulty for run in runs),
        sum(run.phase in faulty and any(map(_says_idle, run.problems)) for run in runs),
        tuple(problem for run in runs for problem in run.problems),
        unseen,
    )


def _says_idle(problem: str) -> bool:
    return "had no visible effect" in problem
