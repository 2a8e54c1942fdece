"""Checkpoints in a training job's cycle: what each costs, where it shares links and where not."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rocelab.base.errors import InputError
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.jobs.training import TrainingJob
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.results.simulation import JobOutcome, SimulationReport
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate

EXACT = Options(eps=0.0, hop_latency_ns=0.0)
MODEL = {"layers": 8, "hidden": 1024, "heads": 8, "ffn": 4096, "vocab": 32000, "sequence": 1024}
EVERY = 3
STEPS = 6
HEADERS = 0.025
"""What headers add to a payload at most."""


def run(lab: str, iterations: int = STEPS, data: int = 4, **checkpoint: Any) -> SimulationReport:
    training: dict[str, object] = {
        "model": MODEL,
        "data": data,
        "sharding": "zero2",
        "gpu_flops": "100T",
        "server_gpus": 1,
        "ignore_memory": True,
    }
    if checkpoint:
        training["checkpoint"] = {"every": EVERY, **checkpoint}
    block = {"name": "train", "iterations": iterations, "training": training}
    return simulate(load_spec(find_lab(lab)), [SimulatedJob.model_validate(block)], EXACT)


def figure(outcome: JobOutcome, name: str) -> float:
    return outcome.headline(name).modelled.median


def times(outcome: JobOutcome) -> list[float]:
    return [time or 0.0 for time in outcome.iterations_ns]


def test_training_waits_for_a_checkpoint_as_long_as_it_takes() -> None:
    """4 ranks write 1 GB each to the NIC of one server of 50 GB/s: 80 ms."""
    (plain,) = run("zone-small").jobs
    (outcome,) = run("zone-small", storage=["srv4-2"], size="4GB").jobs
    checkpoint_ns = figure(outcome, "checkpoint_time")
    assert 80e6 < checkpoint_ns < 80e6 * (1 + HEADERS)
    step_ns = times(plain)[0]
    assert times(outcome) == pytest.approx([step_ns, step_ns, step_ns + checkpoint_ns] * 2)
    assert figure(outcome, "checkpoint_exposed") == pytest.approx(checkpoint_ns)
    whole_ns = EVERY * step_ns + checkpoint_ns
    assert figure(outcome, "checkpoint_share") == pytest.approx(100 * checkpoint_ns / whole_ns)
    assert outcome.ranks == 4
    assert figure(outcome, "jct_ratio") == pytest.approx(figure(plain, "jct_ratio"), rel=0.01)
    assert {part.name: part.time_ns for part in outcome.parts}["checkpoint"] == pytest.approx(
        checkpoint_ns
    )


def test_a_checkpoint_over_the_front_end_meets_nothing_and_a_copy_hides_it() -> None:
    """4 GB to two storage NICs of 25 GB/s: 80 ms, whatever the back end does."""
    where: dict[str, Any] = {"storage": ["sto*"], "network": "frontend", "size": "4GB", "data": 8}
    (plain,) = run("two-networks", data=8).jobs
    (waiting,) = run("two-networks", **where).jobs
    step_ns, checkpoint_ns = times(plain)[0], figure(waiting, "checkpoint_time")
    assert 80e6 < checkpoint_ns < 80e6 * (1 + HEADERS)
    assert figure(waiting, "checkpoint_exposed") == pytest.approx(checkpoint_ns)
    (hidden,) = run("two-networks", **where, asynchronous=True, copy_time="1ms", iterations=60).jobs
    assert figure(hidden, "checkpoint_time") == pytest.approx(checkpoint_ns)
    slow = checkpoint_ns - EVERY * step_ns
    assert figure(hidden, "checkpoint_exposed") == pytest.approx(max(1e6, slow), rel=0.1)


def test_an_asynchronous_checkpoint_that_shares_nics_costs_steps_less_than_its_time() -> None:
    """Over the same NICs it makes steps longer. With 9 steps a third one goes on at the end."""
    shared: dict[str, Any] = {"storage": ["srv4-2"], "size": "4GB"}
    (waiting,) = run("zone-small", **shared).jobs
    report = run("zone-small", **shared, asynchronous=True, iterations=3 * EVERY)
    (outcome,) = report.jobs
    assert 0 < figure(outcome, "checkpoint_exposed") < figure(waiting, "checkpoint_exposed")
    assert "a checkpoint goes on" in " ".join(report.warnings)


def test_a_run_shorter_than_the_interval_has_one_checkpoint_counted_as_one_in_many() -> None:
    (outcome,) = run("zone-small", storage=["srv4-2"], size="4GB", every=1000, iterations=2).jobs
    first, second = times(outcome)
    exposed = figure(outcome, "checkpoint_exposed")
    assert first - second == pytest.approx(exposed)
    assert figure(outcome, "iteration_time") == pytest.approx(second)
    assert figure(outcome, "checkpoint_share") == pytest.approx(
        100 * exposed / (1000 * second + exposed)
    )


@pytest.mark.parametrize(("sharding", "writers"), [("none", 4), ("fsdp", 8)])
def test_replicas_that_are_alike_write_once(sharding: str, writers: int) -> None:
    """14 bytes of each parameter; 980 GB of a model of 70 billion."""
    training = TrainingJob.model_validate(
        {
            "model": "llama3-70b",
            "tensor": 2,
            "pipeline": 2,
            "data": 2,
            "sharding": sharding,
            "gpu_flops": "400T",
            "checkpoint": {"every": 1, "storage": ["sto*"]},
        }
    )
    assert training.checkpoint_bytes == pytest.approx(980e9, rel=0.02)
    assert len(training.writers) == writers


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="network backend is its own"):
        run("two-networks", storage=["srv2-2"], network="backend")
    with pytest.raises(InputError, match="has no network"):
        run("two-networks", storage=["sto*"], network="storage")
    with pytest.raises(ValidationError, match="copy_time is of an asynchronous checkpoint"):
        run("zone-small", storage=["srv4-2"], copy_time="1s")


def test_a_single_step_says_nothing_of_the_steps_that_no_checkpoint_follows() -> None:
    with pytest.raises(InputError, match="follows its only step") as error:
        run("zone-small", storage=["srv4-2"], size="4GB", every=500, iterations=1)
    assert error.value.hint is not None and "iterations: 2" in error.value.hint
    (outcome,) = run("zone-small", storage=["srv4-2"], size="4GB", every=1, iterations=1).jobs
    assert figure(outcome, "checkpoint_share") > 50
