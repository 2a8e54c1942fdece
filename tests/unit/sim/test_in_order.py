"""Workloads packet by packet: sends one by one, in the order that a lab's ranks keep."""

from __future__ import annotations

import pytest

from rocelab.base.errors import InputError
from rocelab.jobs import labschedule
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.load import load
from rocelab.results.engines import Engine
from rocelab.results.simulation import SimulationReport
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate

MODEL = {
    "block": "llama",
    "hidden": 512,
    "layers": 4,
    "heads": 8,
    "ffn": 2048,
    "vocab": 1000,
    "sequence": 128,
}


def training(engine: Engine, **keys: object) -> SimulationReport:
    block = {"model": MODEL, "pipeline": 2, "data": 2, "micro_batches": 4, "gpu_flops": "100T"}
    job = {"name": "small", "iterations": 2, "training": block | keys}
    return simulate(load("zone-small"), [SimulatedJob.model_validate(job)], Options(engine=engine))


def test_a_training_job_takes_about_as_long_as_in_a_fluid_and_for_the_same_reasons() -> None:
    fluid, packets = (training(engine).jobs[0] for engine in (Engine.FLUID, Engine.PACKETS))
    times = [job.headline("iteration_time").modelled for job in (fluid, packets)]
    assert times[1].median == pytest.approx(times[0].median, rel=0.06)
    assert len(packets.iterations_ns) == 2
    assert packets.payload_bytes == fluid.payload_bytes
    assert packets.roofline_ns == pytest.approx(fluid.roofline_ns, rel=0.01)
    assert [part.name for part in packets.parts] == [part.name for part in fluid.parts]
    assert sum(part.share for part in packets.parts) == pytest.approx(1)
    assert (packets.ordered, packets.merged, fluid.merged) == (True, False, True)


def test_more_sends_than_go_one_by_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labschedule, "MOST_SENDS", 40)
    with pytest.raises(InputError, match="merged or pipelined sends"):
        training(Engine.PACKETS)
