"""Storage in simulations: its NICs, what is shared with other jobs, and times known on paper."""

from __future__ import annotations

import pytest

from rocelab.base.errors import InputError
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.results.simulation import JobOutcome, SimulationReport
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation, simulate

EXACT = Options(eps=0.0, hop_latency_ns=0.0)
HEADERS = 0.025
"""What headers add to a payload at most, with packets of 4,096 bytes."""
STORE = {"size": "1GB", "storage": ["sto*"]}


def job(name: str, kind: str, **keys: object) -> SimulatedJob:
    iterations = keys.pop("iterations", 1)
    block = {"name": name, "network": "frontend", "iterations": iterations, kind: keys}
    return SimulatedJob.model_validate(block)


def run(*jobs: SimulatedJob) -> SimulationReport:
    return simulate(load_spec(find_lab("two-networks")), jobs, EXACT)


def headline(outcome: JobOutcome, name: str) -> float:
    return outcome.headline(name).modelled.median


def seconds(outcome: JobOutcome) -> list[float]:
    return [(time or 0.0) / 1e9 for time in outcome.iterations_ns]


def test_an_incast_takes_the_time_of_the_storage_nics() -> None:
    """4 x 1 GB to 2 NICs of 25 GB/s: 80 ms and headers; all read back in as much."""
    report = run(job("write", "checkpoint", **STORE))
    (written,) = report.jobs
    assert written.ranks == 4 and written.nics == tuple(
        f"{name}:1" for name in ("srv1-1", "srv1-2", "srv2-1", "srv2-2")
    )
    assert 0.08 < seconds(written)[0] < 0.08 * (1 + HEADERS)
    assert headline(written, "jct_ratio") == pytest.approx(1.0)
    assert headline(written, "storage_rate") == pytest.approx(4 / seconds(written)[0])
    (read,) = run(job("read", "restore", **STORE)).jobs
    assert seconds(read) == pytest.approx(seconds(written))


def test_storage_is_as_slow_as_it_is_said_to_be() -> None:
    """4 GB at 1 GB/s of payload."""
    (outcome,) = run(job("write", "checkpoint", **STORE, storage_rate="1GB/s")).jobs
    assert seconds(outcome)[0] == pytest.approx(4.0, rel=1e-3)
    assert headline(outcome, "jct_ratio") == pytest.approx(1.0)


def test_one_nic_is_the_limit_of_a_rank_that_writes_alone() -> None:
    """The storage NICs have other rates than the writer's, and the bound is each one's own."""
    (outcome,) = run(job("write", "checkpoint", **STORE, ranks=1)).jobs
    assert 0.04 < seconds(outcome)[0] < 0.04 * (1 + HEADERS)


def test_checkpoints_at_an_interval_take_their_own_time_only() -> None:
    (outcome,) = run(job("write", "checkpoint", **STORE, every="200ms", iterations=3)).jobs
    alone = seconds(outcome)[0]
    assert seconds(outcome) == pytest.approx([alone] * 3)
    assert outcome.end_ns == pytest.approx((0.4 + alone) * 1e9)
    assert headline(outcome, "interval_share") == pytest.approx(100 * alone / 0.2)


def test_the_rate_of_a_late_checkpoint_is_of_its_writing() -> None:
    """Each takes longer than its interval and the next waits: storage is as fast all the time."""
    (alone,) = run(job("write", "checkpoint", **STORE)).jobs
    (late,) = run(job("write", "checkpoint", **STORE, every="81ms", iterations=4)).jobs
    assert headline(late, "interval_share") > 101
    rates = late.headline("storage_rate").modelled
    assert (rates.minimum, rates.maximum) == pytest.approx((headline(alone, "storage_rate"),) * 2)


def test_a_job_writes_from_the_nics_of_another_and_both_are_slower() -> None:
    """While 4 GB are written, batches for the same servers share NICs and storage."""
    batches = job("samples", "ingest", size="100MB", every="20ms", iterations=5, storage=["sto*"])
    restore = job("restore", "restore", of="samples", **STORE)
    (alone,) = run(batches).jobs
    (shared, beside) = run(batches, restore).jobs
    assert beside.nics == shared.nics and beside.ranks == 4
    assert max(seconds(shared)) > 1.5 * max(seconds(alone))
    assert seconds(beside)[0] > 0.08


def test_batches_that_come_late_are_counted() -> None:
    """A restore beside takes the half of every NIC."""
    batches = job("samples", "ingest", size="400MB", every="33ms", iterations=4, storage=["sto*"])
    (alone,) = run(batches).jobs
    assert headline(alone, "late_batches") == 0
    restore = job("restore", "restore", of="samples", size="2GB", storage=["sto*"])
    shared, _ = run(batches, restore).jobs
    assert headline(shared, "late_batches") > 0


@pytest.mark.parametrize(
    ("names", "nics"),
    [
        (["sto2", "sto1"], ["sto2:1", "sto1:1"]),
        (["sto*:1"], ["sto1:1", "sto2:1"]),
        (["fsw1"], ["srv1-1:1", "srv1-2:1", "sto1:1"]),
        (["s*1"], ["srv1-1:1", "srv2-1:1", "sto1:1"]),
    ],
)
def test_storage_is_named_by_server_nic_or_switch(names: list[str], nics: list[str]) -> None:
    one = job("write", "checkpoint", size="1GB", storage=names, ranks=1)
    simulation = Simulation(load_spec(find_lab("two-networks")), [one], EXACT)
    assert [simulation.network.nic_name(nic) for nic in simulation.endpoints[0][0]] == nics


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([job("write", "checkpoint", size="1GB", storage=["disk*"])], "'disk\\*' is no server"),
        ([job("write", "checkpoint", **STORE, of="train")], "no job of that name"),
        ([job("write", "checkpoint", **STORE, ranks=5)], "5 ranks do not fit the 4 NICs"),
        (
            [job("read", "ingest", **STORE, every="1s", readers=["sto1"])],
            "sto1:1 is storage and a reader",
        ),
        (
            [
                job("a", "checkpoint", **STORE, ranks=2),
                job("b", "checkpoint", **STORE, of="a", ranks=3),
            ],
            "job b has 3 ranks, and job a, whose NICs it takes, 2",
        ),
        (
            [
                job("a", "checkpoint", **STORE, ranks=2, storage_rate="2GB/s"),
                job("b", "checkpoint", **STORE, ranks=2, storage_rate="1GB/s"),
            ],
            "jobs a and b have other rates of storage for sto1:1: 1 and 0.5 GB/s",
        ),
    ],
)
def test_what_has_no_place_says_so(jobs: list[SimulatedJob], message: str) -> None:
    with pytest.raises(InputError, match=message):
        run(*jobs)


def test_one_rate_of_storage_in_packets_of_two_sizes_says_what_differs() -> None:
    block = job("b", "checkpoint", **STORE, ranks=2, storage_rate="2GB/s").model_dump(
        mode="json", exclude_defaults=True
    )
    other = SimulatedJob.model_validate({**block, "transport": {"mtu": 1024}})
    with pytest.raises(InputError, match="packets of 4,096 and 1,024 bytes"):
        run(job("a", "checkpoint", **STORE, ranks=2, storage_rate="2GB/s"), other)
