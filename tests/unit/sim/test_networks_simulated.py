"""Jobs of several networks of a lab are simulated at once: each network has its jobs and events."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocelab.base.errors import SpecError
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.load import load
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.networks import simulate_networks, simulations
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate

LAB = load("two-networks")
RING = {"pattern": "allreduce", "ranks": 8, "size": "1MB"}
STORED = {"size": "10MB", "storage": ["sto*"]}


def job(name: str, **keys: object) -> SimulatedJob:
    return SimulatedJob.model_validate({"name": name, **keys})


JOBS = (job("train", collective=RING), job("save", network="frontend", checkpoint=STORED))


def failing(*sentences: str) -> Options:
    events = tuple(map(parse_event, sentences))
    return replace(Options(), timeline=TimelineSpec(events=events))


def test_each_network_has_the_figures_that_its_jobs_have_alone() -> None:
    together = simulate_networks(LAB, JOBS)
    assert list(together) == ["backend", "frontend"]
    for one, report in zip(JOBS, together.values(), strict=True):
        assert report.jobs[0].iterations_ns == simulate(LAB, [one]).jobs[0].iterations_ns


def test_jobs_of_one_network_are_one_simulation() -> None:
    first = (JOBS[0].model_copy(update={"network": "backend"}), JOBS[0])
    assert list(simulate_networks(LAB, first[:1])) == [None]
    twin = job("twin", collective=RING | {"ranks": 2}).model_copy(update={"network": "backend"})
    small = job("small", collective=RING | {"ranks": 4})
    assert [len(made.jobs) for made in simulations(LAB, (small, twin)).values()] == [2]


def test_an_event_is_of_the_network_that_has_its_target() -> None:
    options = failing("fail link fsw1:fsw2 at 1ms for 1ms", "drain ctsw1 at 0ms")
    reports = simulate_networks(LAB, JOBS, options)
    assert {name: len(report.events) for name, report in reports.items()} == {
        "backend": 1,
        "frontend": 1,
    }
    with pytest.raises(SpecError, match="fsw9"):
        simulate_networks(LAB, JOBS, failing("fail link fsw1:fsw9 at 1ms for 1ms"))
