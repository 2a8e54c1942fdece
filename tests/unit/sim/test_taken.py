"""What a simulation takes for granted: GPUs beside servers, rings in the steps of models."""

from __future__ import annotations

from typing import Any

from rocelab import load_host_model
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.model import LabSpec
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation
from rocelab.sim.taken import other_gpus, rings_of_steps

RAILS = {"kind": "rail", "units": 1, "servers_per_unit": 2, "rails": 8, "spines": 2}
SMALL = {"layers": 2, "hidden": 256, "heads": 4, "ffn": 512, "vocab": 1024, "sequence": 256}


def simulation(fabric: dict[str, Any], host: str | None = None, **keys: Any) -> Simulation:
    job = SimulatedJob.model_validate({"name": "job", **keys})
    options = Options(host_model=load_host_model(host).model if host else None)
    return Simulation(LabSpec.model_validate({"name": "lab", "fabric": fabric}), [job], options)


def training(gpu: str) -> dict[str, Any]:
    return {"model": SMALL, "data": 16, "micro_batches": 1, "gpu": gpu}


def test_gpus_that_servers_do_not_have_are_said() -> None:
    (warning,) = other_gpus(simulation(RAILS, "dgx-h100", training=training("h800")))
    assert "computes on h800, and servers dgx-h100 have h100" in warning
    assert not list(other_gpus(simulation(RAILS, "dgx-h100", training=training("h100"))))
    assert not list(other_gpus(simulation(RAILS, training=training("h800"))))


def test_rings_of_steps_that_may_be_off_alone_are_said() -> None:
    clos = {"racks": 4, "spines": 4, "servers_per_rack": 4}
    transport = {"qps": 4, "strategy": "split"}
    scattered = simulation(clos, placement="random", transport=transport, training=training("h100"))
    (warning,) = rings_of_steps(scattered)
    assert "not simulated send by send" in warning
    whole = {**clos, "servers_per_rack": 16}
    assert not list(rings_of_steps(simulation(whole, training=training("h100"))))


def test_an_alltoall_of_a_rack_that_is_one_domain_says_why_no_gpu_relays() -> None:
    rack = {**RAILS, "servers_per_unit": 36, "rails": 4}
    collective = {"pattern": "alltoall", "ranks": 144, "size": "1MB"}
    words = simulation(rack, "gb200-nvl72", collective=collective).collectives_in_words
    assert "direct sends (no pxn: relays of an NVLink domain of several servers" in words
