"""What a run of jobs says of its faults, with a fake session and faults that break nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar

import pytest

from rocelab.base.progress import no_progress
from rocelab.dataplane.steering.scheme import Steering
from rocelab.drills import jobs as phases
from rocelab.drills.drill_spec import PhaseSpec
from rocelab.drills.hashing import reseeded
from rocelab.drills.plan import JobPhase
from rocelab.faults import injector as injecting
from rocelab.faults.base import Timed
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.lab.lab import Lab, RunningLab
from rocelab.labfile.schemes.spray import SprayScheme
from rocelab.linux.linkwatch import LinkEvent
from rocelab.observe.devices import DeviceCounts
from rocelab.observe.timeline import FibTimeline
from rocelab.planning.fabric import Fabric
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, paths_on
from rocelab.results.drill import JobsRun
from rocelab.routes.planned import planned_fibs
from rocelab.runs import jobs as runs
from rocelab.runs import observers
from rocelab.runs.jobs import run_jobs, run_planned
from rocelab.traffic.result import TrafficResult
from tests.helpers import job_sample as sample
from tests.helpers.limits import LIMIT_S
from tests.helpers.noted_faults import MS, Clock, Darkens, DoesNothing, Noted, OnPaper, down

LONG_MS = 3_600_000
LAB = Lab.planned("zone-small").unstarted()
JOB = {"pattern": "allreduce", "ranks": 4, "size": "4MB", "iterations": 3}


class Bench:
    """A lab on paper whose jobs end when the fault of ctsw1 has begun. `ports`: what happened to
    ports by then."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.begun = threading.Event()
        self.injector = OnPaper(ctsw1=self.begins)
        self.ports: list[LinkEvent] = []
        self.begins_too: Callable[[], None] = lambda: None

    def begins(self) -> None:
        self.begins_too()
        self.begun.set()

    def dark(self, late_ms: int) -> None:
        at_ns = self.clock.now_ns + late_ms * MS
        self.ports.append(LinkEvent(at_ns, "rtsw1", "ctsw1", up=True, carrier=False, operstate=2))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    made = Bench(Clock.moved_by_test(monkeypatch))

    class Session:
        def __init__(
            self,
            fabric: object,
            netns_of: object,
            flows: object,
            plans: object,
            *,
            is_watched: bool,
        ) -> None:
            self._plans: Sequence[JobPlan] = plans  # type: ignore[assignment]

        def __enter__(self) -> Session:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was started."""

        def start(self) -> int:
            return made.clock.now_ns

        def wait_for_jobs(self, progress: object, calm_ns: int) -> None:
            assert made.begun.wait(LIMIT_S)

        def stop(self, paused: object) -> TrafficResult:
            return sample.traffic(*map(sample.result, self._plans))

    class Watch:
        def __init__(self, lab: Lab, plans: Sequence[JobPlan]) -> None:
            self._plans = plans

        def __enter__(self) -> Watch:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing was opened."""

        def read(self, started_ns: int) -> DeviceCounts:
            return sample.counts(*map(sample.result, self._plans))

    @contextmanager
    def link_events(lab: Lab) -> Iterator[Sequence[LinkEvent]]:
        yield made.ports

    @contextmanager
    def nothing(*_: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(runs, "TrafficSession", Session)
    monkeypatch.setattr(runs, "DeviceWatch", Watch)
    monkeypatch.setattr(runs, "Injector", lambda lab: made.injector)
    monkeypatch.setattr(runs, "link_events", link_events)
    monkeypatch.setattr(runs, "environment_of", lambda lab: sample.ENVIRONMENT)
    tables = planned_fibs(LAB.fabric, LAB.fabric.prefixes)
    monkeypatch.setattr(RunningLab, "read_fibs", lambda lab: tables)
    monkeypatch.setattr(runs, "need_root", nothing)
    monkeypatch.setattr(RunningLab, "is_running", True)
    monkeypatch.setattr(RunningLab, "locked", nothing)
    monkeypatch.setattr(injecting, "remove_fault", nothing)
    return made


def problems(bench: Bench, kind: type[Noted], *more: Timed) -> tuple[str, ...]:
    bench.injector.kind = kind
    (report,) = run_jobs(
        LAB, [JobSpec.model_validate(JOB)], faults=[down("ctsw1", 0), *more]
    ).reports
    assert report.valid is not bool(report.problems)
    return report.problems


def job_phase(**keys: object) -> JobsRun:
    spec = PhaseSpec.model_validate({"name": "p", "jobs": [JOB], **keys})
    phase = JobPhase(
        spec, LAB.fabric, LAB.fabric, (down("ctsw1", 0),), plan_jobs(LAB.fabric, spec.jobs)
    )
    return phases.run_job_phase(LAB, phase, FibTimeline(LAB, {}), (), None, no_progress)


def links_of(bench: Bench, fabric: Fabric = LAB.fabric) -> list[tuple[str, ...]]:
    bench.begun.set()
    plans = plan_jobs(fabric, [JobSpec.model_validate(JOB)])
    (report,) = run_planned(LAB, plans).reports
    return [flow.links for flow in report.flows]


def test_a_job_s_flows_have_the_paths_that_tables_scheme_and_seeds_give(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    (job,) = plan_jobs(LAB.fabric, [JobSpec.model_validate(JOB)])
    rows = rows_of_jobs([job])

    def expected(fabric: Fabric) -> list[tuple[str, ...]]:
        paths = paths_on(fabric, rows, Setting())
        return [tuple(link.name for link in path) for path in paths]

    assert sorted(links_of(bench)) == sorted(expected(LAB.fabric))
    seeded = reseeded(LAB.fabric, 7)
    assert expected(seeded) != expected(LAB.fabric)
    assert sorted(links_of(bench, seeded)) == sorted(expected(seeded))
    spray = SprayScheme(kind="spray")
    monkeypatch.setattr(Steering, "read_scheme", lambda self: spray)
    assert set(links_of(bench)) == {()}


def test_a_job_whose_fault_began_as_stamped_is_valid(bench: Bench) -> None:
    bench.begins_too = lambda: bench.dark(late_ms=1)
    assert problems(bench, Darkens) == ()


def test_a_job_during_which_a_carrier_goes_long_after_the_stamp_is_not_valid(bench: Bench) -> None:
    bench.begins_too = lambda: bench.dark(late_ms=939)
    (problem,) = problems(bench, Darkens)
    assert problem.startswith("not valid because its first port lost its carrier 939 ms after")
    assert problem.endswith("carrier-down of rtsw1:ctsw1 (the limit is 10 ms)")


def test_a_job_that_is_over_before_its_fault_is_not_valid(bench: Bench) -> None:
    assert problems(bench, Noted, down("ctsw2", LONG_MS)) == (
        "not valid because the run ended before 1 of 2 faults began",
    )


def test_a_job_whose_fault_does_nothing_is_not_valid(bench: Bench) -> None:
    assert problems(bench, DoesNothing) == (
        "not valid because carrier-down of rtsw1:ctsw1 had no visible effect: rtsw1:ctsw1 "
        "has carrier",
    )


def test_what_makes_a_job_invalid_makes_its_phase_so(bench: Bench) -> None:
    bench.injector.kind = DoesNothing
    phase = job_phase()
    assert [text for text in phase.problems if "had no visible effect" in text]


def test_a_job_phase_s_evidence_waits_for_the_end_of_its_jobs(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Monitor:
        report: ClassVar[None] = None

        def __init__(self, lab: Lab, spec: object, *, evidence: object, **keys: bool) -> None:
            log.append(f"evidence later: {keys['evidence_later']}")

        def __enter__(self) -> Monitor:
            return self

        def __exit__(self, *_: object) -> None:
            log.append("over")

        def collect_evidence(self) -> None:
            log.append("evidence")

    log = bench.injector.log
    monkeypatch.setattr(observers, "HealthMonitor", Monitor)
    job_phase(health={})
    assert log == [
        "evidence later: True",
        "prepare rtsw1:ctsw1",
        "inject rtsw1:ctsw1",
        "restore rtsw1:ctsw1",
        "evidence",
        "over",
    ]
