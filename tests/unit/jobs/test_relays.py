"""AlltoAlls on rails: what relays send, in order and merged, and where there are none."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError
from rocelab.hosts.model import HostModel
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.collectives import Pattern, schedule
from rocelab.jobs.job import JobSpec
from rocelab.jobs.merged_sends import workload_of
from rocelab.jobs.patterns.alltoallv import uneven_sizes
from rocelab.jobs.patterns.base import Algorithm
from rocelab.jobs.tuning import tuned_job
from rocelab.labfile.servers import server_named

RELAYED = st.sampled_from([Algorithm.PXN, Algorithm.HIERARCHICAL])
DGX = server_named("dgx-h100").model


def hosts(server: list[int], rail: list[int], model: HostModel = DGX) -> RankHosts:
    servers = np.array(server, np.int32)
    return RankHosts(model, servers, servers, np.array(rail, np.int32), 400e9)


def alltoall(ranks: int, **keys: object) -> JobSpec:
    return JobSpec.model_validate(
        {"pattern": "alltoall", "ranks": ranks, "size": "1MB", "warmup_iterations": 0, **keys}
    )


@given(RELAYED, st.integers(1, 5), st.integers(1, 5), st.integers(0, 9))
def test_relays_leave_servers_on_the_receivers_rail_with_all_bytes(
    algorithm: Algorithm, servers: int, group: int, seed: int
) -> None:
    ranks = servers * group
    if ranks < 2:
        return
    planned = schedule(
        Pattern.ALLTOALLV, ranks, 10**6, algorithm=algorithm, group=group, seed=seed, in_flight=2
    )
    received = np.zeros(ranks, np.int64)
    relayed = np.zeros(ranks, np.int64)
    for send in planned.sends:
        received[send.destination] += send.size_bytes
        if send.source // group != send.destination // group:
            assert send.source % group == send.destination % group
            relayed[send.source] += send.size_bytes
    sizes = np.array(uneven_sizes(ranks, 10**6, seed))
    np.fill_diagonal(sizes, 0)
    server, place = np.divmod(np.arange(ranks), group)
    for rank in range(ranks):
        of_rail = (server == server[rank])[:, None] & (place == place[rank])
        of_rail &= (server != server[rank])[None]
        assert relayed[rank] == sizes[of_rail].sum()
        through = sizes[of_rail & (np.arange(ranks) != rank)[:, None]].sum()
        assert received[rank] == sizes[:, rank].sum() + through


@given(RELAYED, st.sampled_from(["alltoall", "alltoallv"]), st.integers(1, 4), st.integers(2, 5))
def test_merged_relays_send_what_those_in_order_send(
    algorithm: Algorithm, pattern: str, servers: int, group: int
) -> None:
    ranks = servers * group
    keys = {"algorithm": str(algorithm), "pattern": pattern, "group": group}
    job = alltoall(ranks, in_flight=ranks, **keys)
    totals = []
    with pytest.MonkeyPatch.context() as patch:
        for most in (2**15, 0):
            patch.setattr("rocelab.jobs.merged_sends.MOST_ORDERED", most)
            in_order = alltoall(ranks, in_flight=1, **keys) if most else job
            total: Counter[tuple[int, int]] = Counter()
            for step in workload_of(in_order, None, 1).steps:
                if step.sends is not None:
                    ends = step.sends.source.tolist(), step.sends.destination.tolist()
                    for source, target, size in zip(
                        *ends, step.sends.size_bytes.tolist(), strict=True
                    ):
                        total[source, target] += size
            totals.append(total)
    assert totals[0] == totals[1]


def test_gpus_with_nvlink_relay_unless_told_otherwise() -> None:
    two = hosts([0] * 8 + [1] * 8, [*range(8)] * 2)
    job, cost = tuned_job(alltoall(16), two, merges=True)
    assert (job.algorithm, job.group) == (Algorithm.PXN, 8)
    assert cost is not None
    assert "the receiver's rail" in cost.words
    job, cost = tuned_job(alltoall(16, algorithm="direct"), two, merges=True)
    assert cost is not None
    assert cost.words == "direct sends"
    mesh = hosts([0] * 8 + [1] * 8, [*range(8)] * 2, server_named("mi300x").model)
    assert tuned_job(alltoall(16), mesh, merges=True)[0].algorithm is Algorithm.DIRECT


@pytest.mark.parametrize(
    ("server", "rail", "model", "reason"),
    [
        ([0, 0, 1], [0, 1, 0], "dgx-h100", "other numbers of ranks"),
        ([0, 1, 2], [0, 0, 0], "dgx-h100", "one rank"),
        ([0, 0, 0], [0, 1, 2], "dgx-h100", "in one server"),
        ([0, 0, 1, 1], [0, 1, 1, 0], "dgx-h100", "same rails"),
        ([0, 0, 1, 1], [0, 0, 0, 0], "dgx-h100", "by one NIC"),
        ([0, 0, 1, 1], [0, 1, 0, 1], "h100-pcie", "no NVLink"),
        ([0, 0, 1, 1], [0, 1, 0, 1], "gb200-nvl72", "several servers"),
    ],
)
def test_without_rails_ranks_send_by_themselves_and_a_forced_relay_is_refused(
    server: list[int], rail: list[int], model: str, reason: str
) -> None:
    some = hosts(server, rail, server_named(model).model)
    job, _ = tuned_job(alltoall(len(server)), some, merges=True)
    assert job.algorithm is Algorithm.DIRECT
    with pytest.raises(InputError, match=reason):
        tuned_job(alltoall(len(server), algorithm="pxn"), some, merges=True)


def test_a_protocol_is_of_no_alltoall() -> None:
    with pytest.raises(ValueError, match="protocol means nothing for alltoall"):
        alltoall(16, protocol="ll")
