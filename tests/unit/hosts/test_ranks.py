"""`RankHosts`: which ranks reach each other without the network."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rocelab.hosts.model import HostModel, LocalFabric, LocalKind
from rocelab.hosts.ranks import RankHosts, domain_numbers

MODEL = HostModel(
    "pair",
    "a server of two",
    gpus=2,
    nics=2,
    nic_of_gpu=(0, 1),
    nic_cap_bps=384e9,
    gpu_cap_bps=np.inf,
    local=LocalFabric(LocalKind.SWITCH, 8e12, 3400.0),
    launch_ns=8400.0,
    step_ns=14000.0,
    message_ns=0.0,
)


def over(servers: int) -> HostModel:
    return replace(MODEL, local=LocalFabric(LocalKind.SWITCH, 8e12, 3400.0, servers))


def on(servers: list[int], model: HostModel = MODEL) -> RankHosts:
    server = np.array(servers, np.int32)
    domain = domain_numbers(server, np.zeros_like(server), model)
    return RankHosts(model, server, domain, np.zeros_like(server), 384e9)


@pytest.mark.parametrize(
    ("servers", "domains"),
    [(1, [0, 0, 1, 1, 2, 2, 3, 3]), (2, [0, 0, 0, 0, 1, 1, 2, 2]), (3, [0, 0, 0, 0, 0, 0, 1, 1])],
)
def test_a_domain_spans_consecutive_servers_of_a_zone(servers: int, domains: list[int]) -> None:
    server = np.repeat(np.arange(4, dtype=np.int32), 2)
    zone = np.array([0, 0, 0, 0, 0, 0, 1, 1], np.int32)
    if servers == 3:
        zone = np.array([5, 5, 5, 5, 5, 5, 7, 7], np.int32)
    assert domain_numbers(server, zone, over(servers)).tolist() == domains


def test_without_a_fabric_each_rank_is_its_own_domain() -> None:
    hosts = on([0, 0, 1, 1], replace(MODEL, local=None))
    assert not hosts.same_domain(0, 1)
    assert hosts.domain_ranks == 1


def test_ranks_of_one_server_share_a_domain() -> None:
    hosts = on([0, 0, 1, 1])
    assert hosts.same_domain(0, 1)
    assert not hosts.same_domain(1, 2)
    assert hosts.same_domain(np.array([0, 1]), np.array([1, 2])).tolist() == [True, False]
    assert hosts.domain_of(3) == 1
    assert hosts.domain_ranks == 2


def test_domains_list_their_ranks_in_the_order_of_the_first() -> None:
    server = np.array([3, 1, 3, 1, 2], np.int32)
    hosts = RankHosts(MODEL, server, server, np.zeros_like(server), 384e9)
    assert [part.tolist() for part in hosts.domains] == [[0, 2], [1, 3], [4]]
    assert hosts.domain_ranks is None
