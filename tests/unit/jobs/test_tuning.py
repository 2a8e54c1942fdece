"""The choice of algorithm and protocol by size, and what is sent where switches reduce."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.hosts.model import HostModel, LocalFabric, LocalKind
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.collectives import Pattern, schedule
from rocelab.jobs.in_switch import in_switch
from rocelab.jobs.job import JobSpec
from rocelab.jobs.merged_sends import sends_of
from rocelab.jobs.patterns.base import Algorithm, Protocol
from rocelab.jobs.tuning import Shape, estimate_us, tune, tuned, tuned_job

GIB = 2**30


def server(kind: LocalKind = LocalKind.SWITCH) -> HostModel:
    return HostModel(
        name="server",
        title="eight GPUs",
        gpus=8,
        nics=8,
        nic_of_gpu=tuple(range(8)),
        nic_cap_bps=400e9,
        gpu_cap_bps=400e9,
        local=LocalFabric(kind, 3.6e12, 3400),
        launch_ns=8400,
        step_ns=14_000,
        message_ns=0,
    )


ONE = Shape(1, 8, 400, 370)
MANY = Shape(16, 8, 400, 370)


def test_a_ring_in_the_protocol_simple_costs_what_the_host_model_says() -> None:
    cost = tuned(Algorithm.RING, Protocol.SIMPLE, server())
    assert (cost.launch_ns, cost.step_ns, cost.local_ns) == (8400, 14_000, 3400)
    assert (cost.local_share, cost.network_share) == (1, 1)


def test_other_protocols_cost_in_proportion_to_nccls_constants() -> None:
    cost = tuned(Algorithm.TREE, Protocol.LL, server())
    assert cost.launch_ns == pytest.approx(6800)
    assert cost.step_ns == pytest.approx(5000)
    assert cost.local_ns == pytest.approx(600)
    assert cost.network_share == 0.5


def test_an_estimate_is_what_the_formula_gives_by_hand() -> None:
    """126 steps of 128 ranks' ring but for 30 between 16 domains, 1.4 times, and the bytes."""
    steps, between = 2 * 127, 2 * 15
    latency_us = 1.4 * (8.4 + (steps - between) * 3.4 + between * 14)
    bytes_us = GIB * steps / 128 / (1e3 * 370)
    estimate = estimate_us(Pattern.ALLREDUCE, GIB, MANY, server(), Algorithm.RING, Protocol.SIMPLE)
    assert estimate == pytest.approx(latency_us + bytes_us)


def test_a_ring_between_servers_is_slower_once_each_channels_part_has_64_bytes() -> None:
    shape = Shape(16, 8, 400, 370, channels=8)
    least = 64 * 128 * 8
    below, above = (
        estimate_us(Pattern.ALLREDUCE, size, shape, server(), Algorithm.RING, Protocol.SIMPLE)
        for size in (least - 1, least)
    )
    assert above / below == pytest.approx(1.4, rel=0.01)


def test_small_sizes_take_a_low_latency_and_large_ones_the_switch() -> None:
    small = tune(Pattern.ALLREDUCE, 1024, MANY, server())
    assert (small.algorithm, small.protocol) == (Algorithm.TREE, Protocol.LL)
    large = tune(Pattern.ALLREDUCE, GIB, ONE, server())
    assert (large.algorithm, large.protocol) == (Algorithm.NVLS, Protocol.SIMPLE)
    without = tune(Pattern.ALLREDUCE, GIB, ONE, server(LocalKind.MESH))
    assert without.algorithm is Algorithm.RING


@given(st.integers(1, 2**35), st.sampled_from([Pattern.ALLREDUCE, Pattern.ALLGATHER]))
def test_nothing_that_can_be_forced_is_estimated_below_what_is_taken(
    size_bytes: int, pattern: Pattern
) -> None:
    taken = tune(pattern, size_bytes, MANY, server())
    assert taken.protocol is not None
    least = estimate_us(pattern, size_bytes, MANY, server(), taken.algorithm, taken.protocol)
    for protocol in Protocol:
        forced = tune(pattern, size_bytes, MANY, server(), Algorithm.RING, protocol)
        assert forced.protocol is protocol
        assert estimate_us(pattern, size_bytes, MANY, server(), Algorithm.RING, protocol) >= least


def test_what_the_servers_cannot_do_is_refused_with_what_they_can() -> None:
    with pytest.raises(InputError, match="allreduce has no nvls in simple") as caught:
        tune(Pattern.ALLREDUCE, GIB, MANY, server(), Algorithm.NVLS, Protocol.SIMPLE)
    assert "nvls-tree in simple" in (caught.value.hint or "")
    with pytest.raises(InputError, match="no ll128"):
        pcie = server(LocalKind.PCIE)
        tune(Pattern.ALLREDUCE, GIB, MANY, pcie, protocol=Protocol.LL128)


@given(st.integers(1, 9), st.integers(2, 9), st.integers(10**4, 10**9))
def test_a_switch_gets_the_buffer_once_and_trees_keep_to_their_rails(
    domains: int, group: int, size_bytes: int
) -> None:
    sends = in_switch(Pattern.ALLREDUCE, domains * group, size_bytes, group)
    within: Counter[int] = Counter()
    between: Counter[tuple[int, int]] = Counter()
    for source, target, size in zip(
        sends.source.tolist(), sends.destination.tolist(), sends.size_bytes.tolist(), strict=True
    ):
        if source // group == target // group:
            within[source] += size
        else:
            assert source % group == target % group
            between[source % group, source // group] += size
    assert set(within) == set(range(domains * group))
    part = size_bytes / group
    assert all(abs(total - size_bytes - part) <= 1 for total in within.values())
    assert len(between) == (domains * group if domains > 1 else 0)
    # Each edge of both trees carries half of the part up and down.
    by_rail: Counter[int] = Counter()
    for (rail, _), total in between.items():
        by_rail[rail] += total
    assert all(abs(total - 2 * (domains - 1) * part) <= 4 * domains for total in by_rail.values())


def test_the_longest_way_goes_to_the_root_and_back_and_through_the_switch() -> None:
    sends = in_switch(Pattern.ALLREDUCE, 8 * 16, 10**6, 8)
    assert sends.chain is not None
    assert sends.rounds == 2 * 4 + 1 == int((sends.chain == 0).sum())


def test_a_gather_and_a_scatter_pass_the_switch_once() -> None:
    for pattern in (Pattern.ALLGATHER, Pattern.REDUCESCATTER):
        sends = sends_of(pattern, 8, 8000, algorithm=Algorithm.NVLS)
        assert sends.size_bytes.tolist() == [8000] * 8
    with pytest.raises(InputError, match="in one NVLink domain"):
        sends_of(Pattern.ALLGATHER, 16, 8000, algorithm=Algorithm.NVLS, group=8)


def test_a_lab_has_no_such_switch() -> None:
    with pytest.raises(InputError, match="no lab has") as caught:
        schedule(Pattern.ALLREDUCE, 8, 8000, algorithm=Algorithm.NVLS)
    assert "--host-model" in (caught.value.hint or "")


def test_a_job_takes_all_rails_and_says_which_engine_has_a_switch() -> None:
    rank = np.arange(16, dtype=np.int32)
    hosts = RankHosts(server(), rank // 8, rank // 8, rank % 8, 400e9)
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 16, "size": "1GB"})
    made, cost = tuned_job(job, hosts, merges=True)
    assert cost is not None
    assert (made.channels, made.group, made.algorithm) == (8, 8, Algorithm.NVLS_TREE)
    assert tuned_job(job, hosts, merges=False)[0].algorithm is Algorithm.RING
    forced = job.model_copy(update={"algorithm": Algorithm.NVLS_TREE})
    with pytest.raises(InputError, match="which only a fluid has") as caught:
        tuned_job(forced, hosts, merges=False)
    assert "--engine fluid" in (caught.value.hint or "")


@given(st.integers(2, 6), st.integers(1, 8), st.integers(10**3, 10**7))
def test_switches_of_the_network_get_each_part_once_from_each_domain(
    domains: int, group: int, size_bytes: int
) -> None:
    sends = sends_of(
        Pattern.ALLREDUCE, domains * group, size_bytes, algorithm=Algorithm.COLLNET, group=group
    )
    out, into = np.zeros((2, domains * group), np.int64)
    local = sends.source // group == sends.destination // group
    np.add.at(out, sends.source[~local], sends.size_bytes[~local])
    np.add.at(into, sends.destination[~local], sends.size_bytes[~local])
    assert (out == into).all()
    assert out.reshape(domains, group).sum(axis=1).tolist() == [size_bytes] * domains
    within = np.bincount(sends.source[local], sends.size_bytes[local], domains * group)
    assert abs(within - 2 * (group - 1) / group * size_bytes).max(initial=0) <= 2 * group


@pytest.mark.parametrize(
    ("keys", "kind", "reason"),
    [
        ({"ranks": 8}, LocalKind.SWITCH, "in one NVLink domain"),
        ({"placement": "random"}, LocalKind.SWITCH, "leaf by leaf"),
        ({"protocol": "ll"}, LocalKind.SWITCH, "only simple"),
        ({"group": 4}, LocalKind.SWITCH, "other numbers of ranks"),
        ({}, LocalKind.MESH, "without an NVLink switch"),
    ],
)
def test_switches_of_the_network_reduce_where_it_is_modelled(
    keys: dict[str, object], kind: LocalKind, reason: str
) -> None:
    asked = {"pattern": "allreduce", "ranks": 16, "size": "1GB", "algorithm": "collnet"}
    job = JobSpec.model_validate(asked | keys)
    rank = np.arange(job.ranks, dtype=np.int32)
    hosts = RankHosts(server(kind), rank // 8, rank // 8, rank % 8, 400e9)
    with pytest.raises(InputError, match=reason):
        tuned_job(job, hosts, merges=True)


def test_a_lab_says_why_its_switches_do_not_reduce() -> None:
    with pytest.raises(InputError, match="Linux kernels, which forward"):
        schedule(Pattern.ALLREDUCE, 8, 8000, algorithm=Algorithm.COLLNET)


def test_a_launch_counts_for_reductions_in_switches_too() -> None:
    nccl_us = 25
    for algorithm in (Algorithm.NVLS, Algorithm.NVLS_TREE):
        cost = tuned(algorithm, Protocol.SIMPLE, server())
        assert (cost.launch_ns + cost.local_ns) / 1e3 == pytest.approx(nccl_us)
        assert cost.launch_ns == server().launch_ns


def test_meshes_of_other_numbers_of_gpus_are_no_mesh_of_all_ranks() -> None:
    rank = np.arange(5, dtype=np.int32)
    hosts = RankHosts(server(LocalKind.MESH), rank // 3, rank // 3, rank % 3, 400e9)
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 5, "size": "1GB"})
    assert not tuned_job(job, hosts, merges=True)[0].is_on_mesh


def test_what_is_chosen_does_not_depend_on_what_hosts_take() -> None:
    slow = replace(server(), launch_ns=80_000, step_ns=140_000)
    for log in range(10, 34):
        pair, other = (tune(Pattern.ALLREDUCE, 2**log, MANY, host) for host in (server(), slow))
        assert (pair.algorithm, pair.protocol) == (other.algorithm, other.protocol)
    assert other.step_ns == 10 * pair.step_ns


def test_a_switch_that_does_not_reduce_leaves_rings_and_trees() -> None:
    local = server().local
    assert local is not None
    ampere = replace(server(), local=replace(local, reduces=False))
    kinds = {tune(Pattern.ALLREDUCE, 2**log, MANY, ampere).algorithm for log in range(10, 34)}
    assert kinds == {Algorithm.RING, Algorithm.TREE}


def test_two_servers_exchange_a_buffer_once_in_trees() -> None:
    # Two NICs for eight GPUs: a ring's bytes pass each 15/8 times, a tree's once.
    ampere = replace(server(LocalKind.MESH))
    assert tune(Pattern.ALLREDUCE, GIB, Shape(2, 8, 50, 240), ampere).algorithm is Algorithm.TREE
    assert tune(Pattern.ALLREDUCE, GIB, Shape(4, 8, 50, 240), ampere).algorithm is Algorithm.RING


def test_a_switch_that_reduces_takes_the_time_of_its_first_chunk() -> None:
    """16 channels of 8 chunks, of 64 KiB up to 1 GiB and 128 from there on: twice at 0.85 of
    370 GB/s."""
    chunk_ns = 128 * 2**16 / (0.85 * 370)
    for size, chunks in ((2**28, 1), (GIB, 2)):
        tuned_so = tune(Pattern.ALLREDUCE, size, ONE, server(), Algorithm.NVLS)
        assert tuned_so.fill_ns == pytest.approx(2 * chunks * chunk_ns)


def test_gpus_that_share_a_nic_have_a_channel_each() -> None:
    model = replace(server(LocalKind.MESH), nics=4, nic_of_gpu=(0, 0, 1, 1, 2, 2, 3, 3))
    number = np.arange(16, dtype=np.int32)
    hosts = RankHosts(model, number // 8, number // 8, number % 8 // 2, 400e9)
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 16, "size": "1GB"})
    made, _ = tuned_job(job, hosts, merges=True)
    assert (made.channels, made.group) == (8, 8)


def test_aggregated_trees_are_among_servers_of_one_rank() -> None:
    alone = Shape(64, 1, 48, 370)
    taken = tune(Pattern.ALLGATHER, 2**23, alone, server())
    assert (taken.algorithm, taken.protocol) == (Algorithm.PAT, Protocol.SIMPLE)
    # 8 us, 2.8 for each rank; a step is a ring's over 3.5.
    assert taken.launch_ns == pytest.approx(8000 + 64 * 2800)
    assert taken.step_ns == pytest.approx(4000)
    with pytest.raises(InputError, match="allgather has no pat"):
        tune(Pattern.ALLGATHER, 2**23, MANY, server(), Algorithm.PAT)


def test_a_tree_in_ll_sends_on_whole_chunks_as_fast_as_gpus_copy() -> None:
    two = Shape(2, 8, 400, 370, channels=8)
    cost = tune(Pattern.ALLREDUCE, 2**15, two, server(), Algorithm.TREE, Protocol.LL)
    copied_gbs = 45 * 0.7
    assert cost.network_share == pytest.approx(copied_gbs / 370)
    assert cost.fill_ns == pytest.approx(15 * 2**15 / copied_gbs)
    ring = tune(Pattern.ALLREDUCE, 2**15, two, server(), Algorithm.RING, Protocol.LL)
    assert ring.fill_ns == 0
    assert ring.local_share == pytest.approx(45 / 370)
