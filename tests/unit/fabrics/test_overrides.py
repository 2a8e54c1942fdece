"""Exceptions from regular fabrics."""

from __future__ import annotations

from ipaddress import ip_address, ip_interface, ip_network
from typing import Any

import pytest
from pydantic import ValidationError

from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.delays import lab_delays_ns
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import plan_queues
from rocelab.routes.arrays.build import network_of


def _lab(**overrides: Any) -> Fabric:
    clos = {"racks": 3, "spines": 2, "servers_per_rack": 1, "links_per_pair": 2}
    return plan(LabSpec.model_validate({"name": "x", "fabric": clos, "overrides": overrides}))


def test_a_spine_that_is_missing_takes_its_links_with_it() -> None:
    fabric = _lab(remove=["ctsw2"])
    assert {node.name for node in fabric.switches} == {"ctsw1", "rtsw1", "rtsw2", "rtsw3"}
    assert len(fabric.trunks) == 6


def test_links_keep_their_names_where_a_parallel_one_is_missing() -> None:
    fabric = _lab(remove=["rtsw1:ctsw1"])
    names = [link.name for link in fabric.trunks if link.a.node == "rtsw1"]
    assert names == ["rtsw1:ctsw1-2", "rtsw1:ctsw2", "rtsw1:ctsw2-2"]
    assert [link.name for link in _lab(remove=["rtsw1:ctsw2*"]).uplinks("rtsw1")] == [
        "rtsw1:ctsw1",
        "rtsw1:ctsw1-2",
    ]


def test_a_link_has_a_rate_of_its_own() -> None:
    fabric = _lab(links={"ctsw2:rtsw3-2": {"rate": "100G", "delay": "2us", "mtu": 1500}})
    link = fabric.link_by_name["rtsw3:ctsw2-2"]
    assert (link.rate_bps, link.delay_ns, link.mtu) == (10**11, 2000, 1500)
    assert sum(link.rate_bps == 10**11 for link in fabric.links) == 1


def test_nodes_and_links_are_added() -> None:
    fabric = _lab(
        nodes={"srv9": {"role": "server"}, "rtsw1": {"asn": 65001, "loopback": "10.9.9.9"}},
        add=["srv9:eth0 -- rtsw2:swp9", "rtsw1:x1 -- rtsw2:x1"],
    )
    assert [nic.links[0].name for nic in fabric.nics("srv9")] == ["srv9:eth0"]
    assert (fabric.node("rtsw1").asn, fabric.node("rtsw1").loopback) == (65001, "10.9.9.9")
    assert fabric.node("rtsw1").router_id == "10.9.9.9"
    assert "rtsw1:x1" in fabric.link_by_name


def test_a_switch_that_is_added_has_an_as_number_that_no_other_has() -> None:
    fabric = _lab(nodes={"new": {"role": "leaf"}}, add=["new:e1 -- ctsw1:e9"])
    numbers = [node.asn for node in fabric.switches if node.name != "new"]
    assert fabric.node("new").asn is not None
    assert fabric.node("new").asn not in numbers


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"remove": ["ctsw9"]}, "there is no node ctsw9"),
        ({"remove": ["rtsw1:ctsw9"]}, "there is no link rtsw1:ctsw9"),
        ({"links": {"rtsw1:nope": {"rate": "100G"}}}, "there is no link rtsw1:nope"),
        ({"nodes": {"rtsw9": {"asn": 7}}}, "there is no node rtsw9"),
        ({"remove": ["*"]}, "nothing is left of the fabric"),
        ({"add": ["rtsw1:a -- rtsw9:b"]}, "there is no node rtsw9"),
    ],
)
def test_what_is_not_there_is_named(overrides: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        _lab(**overrides)


def test_a_regular_fabric_is_as_it_was() -> None:
    assert _lab() == plan(_lab().spec)
    assert _lab().is_regular
    assert not _lab(remove=["ctsw2"]).is_regular


def _numbered(**keys: Any) -> Fabric:
    clos = {"zones": 2, "racks": 2, "spines": 2, "atsws": 2, "servers_per_rack": 1}
    return plan(LabSpec.model_validate({"name": "x", "fabric": clos, **keys}))


def _asns(fabric: Fabric, role: str) -> list[int | None]:
    return [node.asn for node in fabric.switches if node.role.name == role]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("65533-65540", [65533, 65534, 65536, 65537]),
        ("65535-65539", [65536, 65537, 65538, 65539]),
        ("23454-23458", [23454, 23455, 23457, 23458]),
    ],
)
def test_numbers_that_are_reserved_are_passed_over(text: str, numbers: list[int]) -> None:
    assert _asns(_numbered(addresses={"asns": {"rtsw": text}}), "rtsw") == numbers


def test_a_range_with_a_reserved_number_has_one_fewer() -> None:
    message = r"need 4 AS numbers, and 23455-23458 has 3"
    with pytest.raises(ValidationError, match=message):
        _numbered(addresses={"asns": {"rtsw": "23455-23458"}})


@pytest.mark.parametrize(("owner", "numbers"), [("zone", [7, 7, 8, 8]), ("role", [7, 7, 7, 7])])
def test_a_zone_or_a_role_may_have_one_number(owner: str, numbers: list[int]) -> None:
    rule = {"first": 7, "last": 9, "each": owner}
    assert _asns(_numbered(addresses={"asns": {"ctsw": rule}}), "ctsw") == numbers


def test_the_number_that_a_node_keeps_is_given_to_no_other() -> None:
    fabric = _numbered(
        addresses={"asns": {"rtsw": "100-103"}}, overrides={"nodes": {"z1-rtsw2": {"asn": 101}}}
    )
    assert _asns(fabric, "rtsw") == [100, 101, 102, 103]


def test_a_link_may_have_no_delay_where_others_have_one() -> None:
    clos = {"racks": 2, "spines": 2, "servers_per_rack": 1}
    overrides = {"links": {"rtsw1:ctsw1": {"delay": "0ns"}}}
    keys = {"fabric": clos, "links": {"delay": "2us"}, "overrides": overrides, "dilation": 10}
    fabric = plan(LabSpec.model_validate({"name": "x", **keys}))
    assert fabric.link_by_name["rtsw1:ctsw1"].delay_ns == 0
    assert fabric.link_by_name["rtsw1:ctsw2"].delay_ns == 2000
    assert lab_delays_ns(fabric) == (0, 20_000)


def test_rate_and_mtu_of_a_link_are_those_of_its_queues_and_of_simulations() -> None:
    fabric = _lab(links={"rtsw3:ctsw2-2": {"rate": "100G", "mtu": 1500}})
    queues = plan_queues(fabric)
    dilation = fabric.spec.dilation
    for end in (("rtsw3", "ctsw2-2"), ("ctsw2", "rtsw3-2")):
        port = queues.port_of[end]
        assert (port.rate_bps, port.mtu) == (round(10**11 / dilation), 1500)
    assert sum(port.mtu == 1500 for port in queues.ports) == 2
    network = network_of(fabric.spec)
    rates = {link.name: link.rate_bps for link in fabric.links}
    assert network.rate_bps.tolist() == list(rates.values())
    assert rates["rtsw3:ctsw2-2"] == 10**11


def test_further_links_between_two_nodes_are_numbered_after_those_there_are() -> None:
    fabric = _lab(add=["rtsw1 -- ctsw1", "ctsw1 -- rtsw1"])
    names = [link.name for link in fabric.uplinks("rtsw1") if link.b.node == "ctsw1"]
    assert names == ["rtsw1:ctsw1", "rtsw1:ctsw1-2", "rtsw1:ctsw1-3", "rtsw1:ctsw1-4"]


def test_a_port_is_not_called_as_one_that_is_there() -> None:
    with pytest.raises(ValidationError, match="rtsw1 has 2 ports ctsw1:"):
        _lab(add=["rtsw1:ctsw1 -- rtsw2:x1"])


def test_links_of_a_graph_are_called_by_their_ports() -> None:
    nodes = {"leaf*": {"role": "leaf"}, "spine*": {"role": "spine"}, "srv*": {"role": "server"}}
    links = ["leaf1:e0 -- spine1:p1", "leaf1:e4 -- spine1:p2", "srv1:eth0 -- leaf1:e8"]
    overrides = {"remove": ["spine1:p2"], "links": {"leaf1:e0": {"rate": "100G"}}}
    fabric = {"kind": "graph", "nodes": nodes, "links": links}
    made = plan(LabSpec.model_validate({"name": "x", "fabric": fabric, "overrides": overrides}))
    assert {link.name: link.rate_bps for link in made.trunks} == {"leaf1:e0": 10**11}


def test_a_nic_that_is_added_is_the_last_of_its_server() -> None:
    fabric = _lab(add=["srv1-1:e9 -- rtsw2:e9"])
    assert [nic.links[0].name for nic in fabric.nics("srv1-1")] == ["srv1-1:rtsw1", "srv1-1:e9"]
    servers = [link.a.node for link in fabric.links if not link.is_between_switches]
    assert servers == ["srv1-1", "srv1-1", "srv2-1", "srv3-1"]


@pytest.mark.parametrize("family", ["ipv4", "ipv6"])
def test_a_nic_that_lost_a_port_has_a_link_with_addresses_of_its_own(family: str) -> None:
    """The other NICs of the two switches still share theirs."""
    hpn = {"segments": 1, "servers_per_segment": 2, "rails": 1, "aggs": 1}
    keys = {"name": "x", "fabric": {"kind": "hpn", **hpn}, "addresses": {"family": family}}
    whole = plan(LabSpec.model_validate(keys))
    lost = whole.nics("srv1-1")[0].links[1]
    fabric = plan(LabSpec.model_validate({**keys, "overrides": {"remove": [lost.name]}}))
    (nic,), (other,) = fabric.nics("srv1-1"), fabric.nics("srv1-2")
    (link,) = nic.links
    assert not link.a.is_shared
    assert link.a.address != link.b.address
    assert ip_interface(link.a.address or "").network == ip_interface(link.b.address or "").network
    assert len(other.links) == 2
    assert all(port.a.is_shared for port in other.links)
    assert nic.ip != other.ip
    assert [prefix.origins for prefix in fabric.prefixes if prefix.per_port] == [
        (other.links[0].b.node, other.links[1].b.node)
    ]
    covering = [
        prefix.origins
        for prefix in fabric.prefixes
        if ip_address(nic.ip) in ip_network(prefix.prefix)
    ]
    assert covering == [(link.b.node,)]


def test_a_switch_without_servers_announces_its_loopback_alone() -> None:
    nodes = {"rtsw1": {"loopback": "10.9.9.9"}}
    fabric = _lab(remove=["srv1-1"], nodes=nodes)
    assert [prefix.prefix for prefix in fabric.prefixes_of["rtsw1"]] == ["10.9.9.9/32"]


def test_a_nic_keeps_the_name_of_its_port_where_one_before_it_is_missing() -> None:
    clos = {"racks": 2, "servers_per_rack": 1, "nics_per_server": 2}
    overrides = {"remove": ["srv1-1:rtsw1"]}
    fabric = plan(LabSpec.model_validate({"name": "x", "fabric": clos, "overrides": overrides}))
    (link,) = fabric.links_of["srv1-1"]
    assert (link.name, str(link.b)) == ("srv1-1:rtsw1-2", "rtsw1:srv1-1-2")


def test_a_link_has_the_queues_that_its_exception_names() -> None:
    keys = {
        "fabric": {"racks": 2},
        "overrides": {"links": {"rtsw1:ctsw1": {"queues": "wan"}}},
        "queues": {"buffer": "800KB", "links": {"wan": {"buffer": "100KB"}}},
    }
    fabric = plan(LabSpec.model_validate({"name": "x", **keys}))
    assert [link.name for link in fabric.links if link.queues == "wan"] == ["rtsw1:ctsw1"]
    queues = plan_queues(fabric)
    kinds = {end: queues.port_of[end].kind for end in queues.port_of}
    of_link = {kinds["rtsw1", "ctsw1"], kinds["ctsw1", "rtsw1"]}
    assert len(of_link) == 1
    assert of_link.isdisjoint(
        kind for end, kind in kinds.items() if end not in {("rtsw1", "ctsw1"), ("ctsw1", "rtsw1")}
    )


def test_a_node_has_the_zone_that_its_exception_says() -> None:
    fabric = _numbered(overrides={"nodes": {"z1-rtsw1": {"zone": 7}}})
    zones = {node.name: node.zone for node in fabric.switches}
    assert (zones["z1-rtsw1"], zones["z1-rtsw2"]) == (7, 1)
