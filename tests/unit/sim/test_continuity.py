"""At the sizes where the simulator changes its method, both give the same figures."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.jobs import merged_sends as collectives
from rocelab.jobs.collectives import Pattern, count_sends
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, collective_job
from rocelab.jobs.merged_sends import MOST_IN_TURN, MOST_ORDERED, sends_in_order
from rocelab.jobs.parallelism import in_groups
from rocelab.jobs.patterns.base import Algorithm
from rocelab.jobs.steps import Steps
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.servers import server_named
from rocelab.routes.arrays.build import network_of
from rocelab.sim import simulate
from rocelab.sim.options import Options
from rocelab.sim.simulate import Simulation
from rocelab.sim.warnings import _unevenly_spread

LARGE = load_spec(find_lab("llama3-24k"))
NETWORK = network_of(LARGE)


@pytest.fixture(autouse=True)
def one_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """All simulations are of one network, which is not built for each anew."""
    monkeypatch.setattr(simulate, "network_of", lambda spec: NETWORK)


def microseconds(latency_ns: float, eps: float | None = None, **keys: object) -> float:
    job = collective_job(JobSpec.model_validate(keys))
    simulation = Simulation(LARGE, [job], Options(eps=eps, hop_latency_ns=latency_ns))
    return 1e6 * simulation.iteration_seconds(simulation.run())[0][-1]


def in_order_and_merged(
    monkeypatch: pytest.MonkeyPatch, latency_ns: float, **keys: object
) -> tuple[float, float]:
    """The time of a job whose sends go in order, and merged."""
    monkeypatch.setattr(collectives, "MOST_ORDERED", MOST_IN_TURN)
    in_order = microseconds(latency_ns, eps=0.0, **keys)
    monkeypatch.setattr(collectives, "MOST_ORDERED", 0)
    monkeypatch.setattr(collectives, "MOST_IN_TURN", 0)
    return in_order, microseconds(latency_ns, eps=0.0, **keys)


RAILS = load_spec(find_lab("rail-superpod"))
RAIL_NETWORK = network_of(RAILS)


def ring_in_order_and_as_taken(
    ranks: int, latency_ns: int, host_model: str | None, **keys: object
) -> tuple[float, float]:
    """The time of a ring on rails whose sends go in order, and of one that may be merged."""
    job = collective_job(JobSpec.model_validate(keys | {"ranks": ranks, "algorithm": "ring"}))
    model = None if host_model is None else server_named(host_model).model
    options = Options(eps=0.0, hop_latency_ns=latency_ns, host_model=model)
    times = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulate, "network_of", lambda spec: RAIL_NETWORK)
        for most in (MOST_IN_TURN, 0):
            patch.setattr(collectives, "MOST_ORDERED", most)
            simulation = Simulation(RAILS, [job], options)
            times.append(simulation.iteration_seconds(simulation.run())[0][0])
    return times[0], times[1]


@pytest.mark.parametrize(
    ("latency_ns", "host_model", "keys"),
    [
        (900, "dgx-h100", {"size": "4MB", "channels": 4, "pattern": "allgather"}),
        (900, "dgx-h100", {"size": "50MB", "channels": 8, "pattern": "reducescatter"}),
        (900, None, {"size": "1MB", "pattern": "reducescatter", "placement": "random"}),
    ],
    ids=["latency", "both", "shared links"],
)
def test_rings_of_servers_and_shared_links_take_what_those_in_order_take(
    latency_ns: int, host_model: str | None, keys: dict[str, object]
) -> None:
    in_order, taken = ring_in_order_and_as_taken(32, latency_ns, host_model, **keys)
    assert taken == pytest.approx(in_order, rel=0.0125)


@pytest.mark.long
@settings(max_examples=60)
@given(
    size=st.integers(2**15, 2**28),
    latency_ns=st.integers(100, 8000),
    pattern=st.sampled_from(["allreduce", "allgather", "reducescatter"]),
    placement=st.sampled_from(["contiguous", "fragmented", "random"]),
    channels=st.sampled_from([1, 2, 8]),
    host_model=st.sampled_from([None, "dgx-h100", "mi300x"]),
    seed=st.integers(0, 99),
)
def test_rings_take_what_those_in_order_take_or_are_not_merged(
    size: int, latency_ns: int, host_model: str | None, **keys: object
) -> None:
    """Also where chunks wait for latency and for links alike."""
    in_order, taken = ring_in_order_and_as_taken(
        48, latency_ns, host_model, size=f"{size}B", **keys
    )
    assert taken == pytest.approx(in_order, rel=0.01)


def test_iterations_are_simulated_in_order_up_to_as_many_sends_as_a_job_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 4, "size": "1MiB"})
    sends = count_sends(job.pattern, job.ranks, 2**20)
    monkeypatch.setattr(collectives, "MOST_ORDERED", sends)
    monkeypatch.setattr(collectives, "MOST_IN_TURN", 3 * sends)
    assert sends_in_order(job, 3) == 3 * sends
    assert sends_in_order(job, 4) == 0
    monkeypatch.setattr(collectives, "MOST_ORDERED", sends - 1)
    assert sends_in_order(job, 1) == 0


@pytest.mark.long
def test_an_alltoall_takes_a_little_longer_with_a_rank_more() -> None:
    """182 ranks are the first whose sends are more than are simulated of other collectives."""
    assert 181 * 180 <= MOST_ORDERED < 182 * 181
    fewer, more = (
        microseconds(0, pattern="alltoall", ranks=ranks, size="64MB", in_flight=1)
        for ranks in (181, 182)
    )
    assert more == pytest.approx(fewer, rel=0.03)


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "latency_ns"), [(16, 0), (16, 1000), (181, 1000), (182, 1000)])
def test_an_alltoall_takes_as_long_in_a_step_of_a_training_job_as_alone(
    monkeypatch: pytest.MonkeyPatch, ranks: int, latency_ns: float
) -> None:
    keys = {"pattern": "alltoall", "ranks": ranks, "size": "64MB"}
    alone = microseconds(latency_ns, eps=0.0, **keys)
    steps, everyone = Steps(), np.arange(ranks, dtype=np.int32)[None]
    steps.add("exchange", sends=in_groups(Pattern.ALLTOALL, 64e6, everyone))
    one_step = steps.workload(ranks, 1)
    monkeypatch.setattr(simulate, "workload_of", lambda job, group, iterations, **_: one_step)
    assert microseconds(latency_ns, eps=0.0, **keys) == pytest.approx(alone, rel=1e-9)


@pytest.mark.parametrize("in_flight", [1, 3, 64])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("pattern", ["alltoall", "alltoallv"])
def test_an_alltoall_takes_as_long_in_turn_as_in_order(
    monkeypatch: pytest.MonkeyPatch, pattern: str, channels: int, in_flight: int
) -> None:
    keys = {"pattern": pattern, "ranks": 12, "size": "1MB", "channels": channels}
    keys["in_flight"] = in_flight
    in_order = microseconds(1000, eps=0.0, **keys)
    monkeypatch.setattr(collectives, "MOST_ORDERED", 0)
    assert microseconds(1000, eps=0.0, **keys) == pytest.approx(in_order, rel=1e-9)


def test_an_alltoall_of_more_sends_than_are_simulated_in_order_is_refused() -> None:
    keys = {"pattern": "alltoall", "ranks": 1025, "size": "64MB", "in_flight": 64}
    job = JobSpec.model_validate(keys)
    assert count_sends(job.pattern, 1024, 64 * 10**6) <= MOST_IN_TURN
    with pytest.raises(InputError, match="AlltoAlls of 1,049,600 sends") as caught:
        collectives.workload_of(job, None, 1)
    assert "fewer ranks" in (caught.value.hint or "")


RANKS = 32


@pytest.mark.long
@pytest.mark.parametrize(("size", "latency_ns"), [("1MB", 1000), ("64MB", 0)])
@pytest.mark.parametrize(
    ("bound", "keys"),
    [
        (0.01, {"pattern": "allreduce"}),
        (0.01, {"pattern": "allreduce", "channels": 2}),
        (0.01, {"pattern": "allgather", "channels": 4}),
        (0.01, {"pattern": "reducescatter"}),
        (0.01, {"pattern": "allreduce", "placement": "random"}),
        (0.03, {"pattern": "broadcast"}),
        (0.03, {"pattern": "broadcast", "channels": 2}),
        (0.15, {"pattern": "allreduce", "algorithm": "tree"}),
        (0.15, {"pattern": "allreduce", "algorithm": "tree", "channels": 2}),
        (0.10, {"pattern": "allreduce", "algorithm": "hierarchical", "group": 8}),
        (0.10, {"pattern": "allreduce", "algorithm": "hierarchical", "group": 8, "channels": 2}),
        (0.01, {"pattern": "gather"}),
        (0.01, {"pattern": "incast"}),
        (0.01, {"pattern": "permutation", "channels": 2}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_merged_sends_take_what_those_in_order_take(
    monkeypatch: pytest.MonkeyPatch,
    bound: float,
    keys: dict[str, object],
    size: str,
    latency_ns: float,
) -> None:
    """Trees fill, and phases of a hierarchical AllReduce follow each other, in order a little
    sooner than merged: pieces overtake."""
    in_order, merged = in_order_and_merged(monkeypatch, latency_ns, ranks=RANKS, size=size, **keys)
    assert merged == pytest.approx(in_order, rel=bound)


@pytest.mark.parametrize(
    ("bound", "keys"),
    [
        (0.01, {"pattern": "allreduce"}),
        (0.01, {"pattern": "broadcast"}),
        (0.01, {"pattern": "broadcast", "compute": "1ms"}),
        (0.15, {"pattern": "allreduce", "algorithm": "tree"}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_iterations_that_follow_another_take_what_those_in_order_take(
    monkeypatch: pytest.MonkeyPatch, bound: float, keys: dict[str, object]
) -> None:
    """The number of iterations decides about the method too."""
    in_order, merged = in_order_and_merged(
        monkeypatch, 1000, ranks=16, size="1MB", iterations=3, **keys
    )
    assert merged == pytest.approx(in_order, rel=bound)


@pytest.mark.long
def test_a_rings_latency_is_that_of_its_own_hops_at_every_size() -> None:
    """128 ranks are the last whose sends are simulated one by one."""
    assert 2 * 128 * 127 <= MOST_ORDERED < 2 * 129 * 128
    fewer, more = (
        microseconds(1000, pattern="allreduce", ranks=ranks, size="1MB") for ranks in (128, 129)
    )
    assert fewer < more == pytest.approx(fewer, rel=0.02)


def test_completions_taken_together_move_an_alltoall_by_less_than_a_percent() -> None:
    keys = {"pattern": "alltoall", "ranks": 96, "size": "64MB"}
    assert microseconds(0, eps=0.01, **keys) == pytest.approx(
        microseconds(0, eps=0.0, **keys), rel=0.01
    )


def test_every_iteration_of_an_alltoall_takes_as_long() -> None:
    """Out of step, those of a fluid took up to seven times as long as the first."""
    keys = {"pattern": "alltoall", "ranks": 32, "size": "32MB", "iterations": 20}
    simulation = Simulation(LARGE, [collective_job(JobSpec.model_validate(keys))])
    (times,) = simulation.iteration_seconds(simulation.run())
    assert times == pytest.approx([times[0]] * 20, rel=1e-9)


def test_jobs_that_share_no_link_take_as_long_as_alone_however_many_transfers_there_are() -> None:
    """51,584 of them, and one that takes a thousand times as long."""
    keys = {"pattern": "alltoall", "ranks": 32, "size": "32MB"}
    small = SimulatedJob.model_validate({"name": "small", "iterations": 52, "collective": keys})
    large = collective_job(JobSpec.model_validate({"pattern": "pairs", "ranks": 2, "size": "64GB"}))
    alone, beside = (
        (simulation := Simulation(LARGE, jobs)).iteration_seconds(simulation.run())[0]
        for jobs in ([small], [small, large])
    )
    assert beside == pytest.approx(alone, rel=1e-9)


RING = {"pattern": "allreduce", "ranks": 24, "size": "12MB"}
"""Chunks of 500 kB."""

EVENLY = [
    ({"qps": 4}, False),
    ({"qps": 4, "message": "125KB"}, True),
    ({"qps": 4, "message": "126KB"}, True),
    ({"qps": 4, "message": "127KB"}, False),
    ({"qps": 4, "message": "166KB"}, False),
    ({"qps": 4, "message": "100KB"}, False),
    ({"qps": 2, "message": "2488B"}, True),
    ({"qps": 2, "message": "100KB"}, False),
    ({"qps": 4, "strategy": "split"}, True),
    ({"qps": 1}, True),
]


@pytest.mark.parametrize(("transport", "evenly"), EVENLY)
def test_rings_are_merged_only_where_queue_pairs_carry_as_much_of_each_chunk(
    monkeypatch: pytest.MonkeyPatch, transport: dict[str, object], evenly: bool
) -> None:
    job = JobSpec.model_validate(RING | {"transport": transport, "placement": "random"})
    in_order = collectives.workload_of(job, None, 1)
    assert in_order.ordered
    monkeypatch.setattr(collectives, "MOST_ORDERED", 0)
    assert collectives.workload_of(job, None, 1).ordered is not evenly
    monkeypatch.setattr(collectives, "MOST_IN_TURN", 24 * 2 * 23 - 1)
    if evenly:
        assert not collectives.workload_of(job, None, 1).ordered
    else:
        with pytest.raises(InputError, match="1,104 sends, each after another") as caught:
            collectives.workload_of(job, None, 1)
        assert "--strategy split" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("bound", "keys"),
    [
        (0.01, {"pattern": "allreduce"}),
        (0.03, {"pattern": "reducescatter", "channels": 2}),
        (0.06, {"pattern": "broadcast"}),
        (0.15, {"pattern": "allreduce", "algorithm": "tree"}),
        (0.10, {"pattern": "allreduce", "algorithm": "hierarchical", "group": 8}),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
@pytest.mark.parametrize(("qps", "messages"), [(2, 2), (4, 4), (4, 8), (16, 16)])
def test_merged_parts_of_which_each_queue_pair_carries_as_much_take_what_those_in_order_take(
    monkeypatch: pytest.MonkeyPatch, bound: float, keys: dict[str, object], qps: int, messages: int
) -> None:
    job = JobSpec.model_validate(keys | {"ranks": RANKS, "size": "16MB"})
    part = collectives._part_bytes(job, 16 * 10**6)
    assert part is not None
    transport = {"qps": qps, "message": f"{-(-part // messages)}B"}
    keys |= {"ranks": RANKS, "size": "16MB", "placement": "random", "transport": transport}
    in_order, merged = in_order_and_merged(monkeypatch, 1000, **keys)
    assert merged == pytest.approx(in_order, rel=bound)


@pytest.mark.parametrize("transport", [{"qps": 1}, {"qps": 4, "strategy": "split"}])
def test_headers_fill_a_chain_too(
    monkeypatch: pytest.MonkeyPatch, transport: dict[str, object]
) -> None:
    """Of 100 bytes, most on the wire is headers."""
    keys = {"pattern": "broadcast", "ranks": 9, "size": "100B", "transport": transport}
    in_order = microseconds(0, eps=0.0, **keys)
    monkeypatch.setattr(collectives, "MOST_ORDERED", 0)
    assert microseconds(0, eps=0.0, **keys) == pytest.approx(in_order, rel=0.02)


@pytest.mark.long
@pytest.mark.parametrize(("group", "least", "most"), [(3, 1.3, 1.41), (11, 1.05, 1.10)])
def test_merged_phases_of_small_groups_do_not_overlap_as_those_in_order_do(
    monkeypatch: pytest.MonkeyPatch, group: int, least: float, most: float
) -> None:
    """In order, chunks are in other phases, on other links, at the same time."""
    keys = {"pattern": "allreduce", "algorithm": "hierarchical", "group": group, "ranks": 132}
    keys |= {"size": "1056MB", "placement": "random"}
    in_order, merged = in_order_and_merged(monkeypatch, 1000, **keys)
    assert least < merged / in_order < most


@pytest.mark.parametrize(("transport", "evenly"), EVENLY)
def test_rings_of_a_training_that_spread_unevenly_are_warned_of(
    transport: dict[str, object], evenly: bool
) -> None:
    """A training's rings are merged at every size."""
    sends = in_groups(Pattern.ALLREDUCE, 12e6, np.arange(24, dtype=np.int32)[None])
    steps = Steps()
    steps.add("gradients", sends=sends)
    job = collective_job(JobSpec.model_validate(RING | {"transport": transport}))
    simulation = SimpleNamespace(jobs=(job,), workloads=(steps.workload(24, 1),))
    warnings = list(_unevenly_spread(simulation))
    assert len(warnings) == (0 if evenly else 1)
    assert all("strategy: split" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("algorithm", "share"), [("tree", "26%"), ("hierarchical", "40%"), ("ring", "")]
)
def test_trees_and_phases_go_in_order_as_long_as_can_be_and_merged_ones_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, algorithm: str, share: str
) -> None:
    keys = {"pattern": "allreduce", "algorithm": algorithm, "ranks": 16, "size": "1MB"}
    job = JobSpec.model_validate(keys | ({"group": 4} if algorithm == "hierarchical" else {}))
    sends = count_sends(job.pattern, job.ranks, 10**6, Algorithm(algorithm))
    monkeypatch.setattr(collectives, "MOST_ORDERED", sends - 1)
    assert bool(sends_in_order(job, 1)) is bool(share)
    monkeypatch.setattr(collectives, "MOST_IN_TURN", sends - 1)
    assert not sends_in_order(job, 1)
    report = Simulation(LARGE, [collective_job(job)]).report()
    texts = [warning for warning in report.warnings if "are not simulated one by one" in warning]
    assert len(texts) == bool(share)
    assert all(
        f"{algorithm} allreduce takes up to {share} more or less" in warning for warning in texts
    )
