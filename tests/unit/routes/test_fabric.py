"""Networks and routes of the simulator: equal to the lab's fabric and to BGP's routes on it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocelab.base.arrays import NONE
from rocelab.base.errors import InputError
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric, Nic
from rocelab.planning.routes import NextHops, spread
from rocelab.routes.arrays.build import network_of
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.routes import Routes
from rocelab.routes.arrays.te import GroupTable, group_table
from tests.helpers.groups import sends_to

ONE_PLANE = {
    "kind": "hpn",
    "segments": 2,
    "servers_per_segment": 2,
    "planes": 1,
    "aggs": 3,
    "links_per_pair": 2,
    "cores": 2,
    "links_per_core": 2,
}
ZONES = {
    "zones": 2,
    "racks": 3,
    "spines": 3,
    "links_per_pair": 2,
    "servers_per_rack": 2,
    "nics_per_server": 2,
    "atsws": 2,
    "links_per_atsw": 2,
}
OWN = {"hpn-cores": ONE_PLANE, "zones": ZONES}
CATALOG = (
    "tiny",
    "zone-small",
    "zone-1-1125",
    "uplinks-16",
    "unnumbered",
    "zones-small",
    "zones-1-28",
    "rail-small",
    "hpn-small",
    "hpn-single-plane",
    "hpn-single-tor",
    "fat-tree-4",
)
LABS = (*CATALOG, *OWN)


def spec_of(name: str) -> LabSpec:
    if name in OWN:
        return LabSpec.model_validate({"name": name, "fabric": OWN[name]})
    return load_spec(find_lab(name))


@cache
def fabric_of(name: str) -> Fabric:
    return plan(spec_of(name))


@cache
def built(name: str) -> Network:
    return network_of(spec_of(name))


def nics_of(fabric: Fabric) -> list[Nic]:
    return [nic for server in fabric.servers for nic in fabric.nics(server.name)]


@pytest.mark.parametrize("name", [*LABS, "zone-256x32"])
def test_a_network_is_the_fabric_of_its_spec(name: str) -> None:
    fabric, network = fabric_of(name), built(name)
    number = {node.name: index for index, node in enumerate(fabric.nodes)}
    links, nics = fabric.directed_links, nics_of(fabric)

    assert network.node_names == tuple(node.name for node in fabric.nodes)
    assert network.roles == tuple(node.role for node in fabric.nodes)
    assert network.asn.tolist() == [node.asn or 0 for node in fabric.nodes]
    assert network.zone.tolist() == [node.zone or NONE for node in fabric.nodes]
    assert network.hash_seed.tolist() == [node.hash_seed for node in fabric.nodes]
    assert network.sender.tolist() == [number[link.sender] for link in links]
    assert network.receiver.tolist() == [number[link.receiver] for link in links]
    assert network.rate_bps.tolist() == [link.rate_bps for link in fabric.links]
    assert [network.link_name(i) for i in range(network.links)] == [
        link.name for link in fabric.links
    ]
    assert network.nic_server.tolist() == [number[nic.server] for nic in nics]
    assert [network.ip(nic) for nic in range(network.nics)] == [nic.ip for nic in nics]
    assert network.nic_number.tolist() == [nic.number for nic in nics]
    for place, nic in enumerate(nics):
        numbers = [link for link in network.nic_links[place].tolist() if link != NONE]
        leaves = [leaf for leaf in network.home_leaves[network.nic_home[place]] if leaf != NONE]
        assert [network.link_name(link) for link in numbers] == [link.name for link in nic.links]
        assert [network.node_names[leaf] for leaf in leaves] == [link.b.node for link in nic.links]


def test_a_send_is_named_by_its_sender_and_a_node_found_by_its_name() -> None:
    network = built("zone-small")
    link = next(i for i in range(network.links) if network.link_name(i) == "rtsw1:ctsw2-2")

    assert network.send_name(2 * link + 1) == "ctsw2:rtsw1-2"
    assert network.node_names[network.node_number("ctsw2")] == "ctsw2"


def test_a_fabric_that_no_lab_can_address_has_the_addresses_that_follow() -> None:
    racks = {"zones": 64, "racks": 128, "spines": 1, "servers_per_rack": 2, "nics_per_server": 8}
    spec = LabSpec.model_validate({"name": "t", "fabric": {**racks, "atsws": 1}})

    with pytest.raises(InputError, match=r"198\.18\.0\.0/15 has 131072 addresses"):
        plan(spec)
    network = network_of(spec)

    assert network.nics == 131_072
    addresses = network.nic_address.view(">u4").reshape(-1).astype(np.int64)
    assert len(np.unique(addresses)) == 131_072
    assert addresses.max() - addresses.min() == 8191 * 64 + 15 * 2


def remaining(fabric: Fabric, down: set[int]) -> Fabric:
    """The fabric without some links."""
    return replace(fabric, links=tuple(x for i, x in enumerate(fabric.links) if i not in down))


def planned(fabric: Fabric, left: Fabric, nic: int) -> dict[str, NextHops]:
    """The links that every switch sends by, BGP's routes and the leaves' own."""
    target = nics_of(fabric)[nic]
    alive = [link for link in target.links if link.name in left.link_by_name]
    dual = len(target.links) == 2
    origins = [link.b.node for link in (alive if dual else target.links)]
    groups = spread(left, origins) if origins else {}
    return groups | {link.b.node: (link,) for link in alive}


def table_agrees(routes: Routes, table: GroupTable, switches: list[int], nic: int) -> None:
    klass = routes.nic_class[nic]
    for switch in switches if klass != NONE else ():
        cell = table.group[switch, klass]
        listed = table.sends[table.start[cell] : table.start[cell + 1]]
        if switch in routes.origins[klass]:
            assert cell == NONE
        else:
            expected = sends_to(routes, nic, switch).tolist()
            assert (listed.tolist() if cell != NONE else []) == expected


def groups_agree(name: str, down: set[int]) -> None:
    fabric, network = fabric_of(name), built(name)
    left = remaining(fabric, down)
    up = np.ones(network.links, np.bool_)
    up[list(down)] = False
    routes = Routes(network, up)
    table = group_table(routes)
    switches = [i for i, node in enumerate(fabric.nodes) if node.is_switch]
    for nic in range(network.nics):
        expected = planned(fabric, left, nic)
        hops = routes.next_hops(np.array(switches, np.int32), np.full(len(switches), nic, np.int32))
        for row, switch in enumerate(switches):
            group = sends_to(routes, nic, switch)
            node = network.node_names[switch]
            names = [network.link_name(send // 2) for send in group.tolist()]
            assert set(names) == {link.name for link in expected.get(node, ())}, (node, nic)
            assert all(network.sender[group] == switch)
            assert all(np.diff(group) > 0), "in the order of addresses, as zebra sorts gateways"
            assert hops.count[row] == len(group)
        table_agrees(routes, table, switches, nic)


@pytest.mark.parametrize("name", LABS)
def test_healthy_groups_are_those_of_bgp(name: str) -> None:
    groups_agree(name, set())


@pytest.mark.long
@settings(max_examples=15)
@given(st.data())
def test_groups_with_links_down_are_those_of_bgp(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(LABS))
    links = st.integers(0, built(name).links - 1)
    groups_agree(name, data.draw(st.sets(links, max_size=built(name).links // 2)))
