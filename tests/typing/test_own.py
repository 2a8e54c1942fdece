"""A user's suite, as `mypy --strict` reads it; `tests/integration/test_wheel.py` runs that."""

from __future__ import annotations

from pathlib import Path

import pytest

import rocelab
from rocelab import (
    Duration,
    FaultMaker,
    InputError,
    JobReport,
    JobSpec,
    Lab,
    LabSpec,
    MeasureMaker,
    Measurement,
    RunningLab,
    SimulationReport,
    TrafficMaker,
    load,
    plan,
    predict,
    run_job,
    simulate,
)

pytestmark = pytest.mark.lab("tiny")


def converged(lab: RunningLab) -> Duration:
    run: Measurement
    with lab.measure(lab.traffic(flows=16)) as run, lab.fault("carrier-down", link="rtsw1:ctsw1"):
        run.hold("1s")
    return run.full_convergence


def up(name: str) -> str:
    planned: Lab = Lab.planned(name)
    with planned.brought_up() as lab:
        links: list[str] = [link.name for link in lab.fabric.links]
        return lab.node(links[0].partition(":")[0]).exec(["ip", "route"]).stdout


def simulated(name: str, job: JobSpec) -> SimulationReport:
    spec: LabSpec = load(name)
    predict(Lab(plan(spec)), [job], hashing="per-tier")
    return simulate(spec, [job])


def measured(name: str, job: JobSpec, out: Path) -> JobReport | None:
    try:
        return run_job(RunningLab.open(name), job, out=out)
    except InputError as error:
        assert error.hint
        return None


def test_it(
    lab: RunningLab, traffic: TrafficMaker, fault: FaultMaker, measure: MeasureMaker
) -> None:
    with measure(traffic(flows=4)) as run, fault("carrier-down", link="rtsw1:ctsw1"):
        run.hold("300ms")
    assert run.full_convergence <= "1s"
    assert lab.name in rocelab.__version__ or lab.spec.dilation == 1
