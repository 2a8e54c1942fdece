"""Fabrics of kind `graph`: what links become, and what is refused, with its place."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from rocelab.base.errors import SpecError
from rocelab.base.sysctls import HASH_POLICY
from rocelab.fabrics.ports import interfaces_of
from rocelab.labfile.cables import CABLES as CABLE_FORMAT
from rocelab.labfile.cables import read_cables
from rocelab.labfile.load import load_spec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.routes import expected_routes
from rocelab.planning.settings import node_settings, port_settings

CABLES = """\
a_node,a_port,b_node,b_port,rate
leaf1,Ethernet0,spine1,eth1/1,
leaf1,Ethernet4,spine2,eth1/1,
leaf2,Ethernet0,spine1,eth1/2,
leaf3,Ethernet0,spine2,eth1/2,
leaf3,Ethernet4,leaf2,Ethernet4,100G
srv1,eth0,leaf1,Ethernet8,200G
srv2,eth0,leaf2,Ethernet8,
srv3,eth0,leaf3,Ethernet8,
"""
LAB = """\
name: uneven
fabric:
  kind: graph
  cables: cables.csv
  nodes:
    leaf1: {role: leaf, asn: 64999, loopback: 10.0.0.77}
    "leaf*": {role: leaf}
    "spine*": {role: spine}
    "srv*": {role: server}
addresses:
  loopbacks: 10.0.0.0/24
  links: 10.1.0.0/24
  servers: 10.2.0.0/20
  asns: {leaf: 65001-65100, spine: 65200}
"""


def _lab(folder: Path, *, lab: str = LAB, cables: str = CABLES) -> Fabric:
    (folder / "cables.csv").write_text(cables)
    (folder / "lab.yaml").write_text(lab)
    return plan(load_spec(folder / "lab.yaml"))


def _problem(folder: Path, *, lab: str = LAB, cables: str = CABLES) -> str:
    with pytest.raises(SpecError) as refused:
        _lab(folder, lab=lab, cables=cables)
    return str(refused.value).replace(f"{folder}/", "")


def test_two_switches_of_one_bgp_identifier_are_refused_at_their_line(tmp_path: Path) -> None:
    twice = LAB.replace(
        '"leaf*": {role: leaf}',
        'leaf2: {role: leaf, router_id: 10.0.0.77}\n    "leaf*": {role: leaf}',
    )
    problem = _problem(tmp_path, lab=twice)
    assert "leaf1 and leaf2 have one BGP identifier, 10.0.0.77" in problem
    assert problem.startswith("lab.yaml:7: fabric.nodes.leaf2.router_id: ")


def test_a_link_whose_network_holds_that_of_another_is_refused(tmp_path: Path) -> None:
    cables = CABLES.replace("leaf1,Ethernet4,spine2,eth1/1,\n", "")
    wide = "overrides:\n  add:\n    - {a: 'leaf1:Ethernet4', b: 'spine2:eth1/1', "
    wide += "addresses: [[10.1.3.1/16, 10.1.3.2/16]]}\n"
    problem = _problem(tmp_path, lab=LAB + wide, cables=cables)
    assert "a link has addresses of 10.1.0.0/16, which holds the 10.1.0.0/31" in problem


def test_a_list_of_cables_is_a_fabric_with_its_ports_and_numbers(tmp_path: Path) -> None:
    fabric = _lab(tmp_path)
    assert [link.name for link in fabric.trunks][:2] == ["leaf1:Ethernet0", "leaf1:Ethernet4"]
    first = fabric.trunks[0]
    assert (str(first.b), first.b.interface) == ("spine1:eth1/1", "eth1-1")
    assert {link.name: link.rate_bps for link in fabric.links if link.rate_bps != 400 * 10**9} == {
        "srv1:eth0": 200 * 10**9,
        "leaf3:Ethernet4": 100 * 10**9,
    }
    assert {node.name: node.asn for node in fabric.switches} == {
        "leaf1": 64999,
        "leaf2": 65001,
        "leaf3": 65002,
        "spine1": 65200,
        "spine2": 65200,
    }
    assert fabric.node("leaf1").loopback == "10.0.0.77"
    assert not fabric.is_tiered


def test_a_switch_routes_around_by_as_hops(tmp_path: Path) -> None:
    fabric = _lab(tmp_path)
    routes = expected_routes(fabric)
    (block,) = (
        prefix.prefix for prefix in fabric.prefixes_of["leaf2"] if prefix.prefix.endswith("/30")
    )
    assert [link.name for link in routes["leaf3"][block]] == ["leaf3:Ethernet4"]
    # Spines have one AS number, so that leaf1 hears of leaf2 from spine1 alone.
    assert [link.name for link in routes["leaf1"][block]] == ["leaf1:Ethernet0"]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("leaf3,Ethernet4,leaf2,Ethernet4", "leaf3,Ethernet4,leaf2,Ethernet0", "on two links"),
        ("srv3,eth0,leaf3", "srv3,eth0,srv2", "joins two servers"),
        ("leaf3,Ethernet4,leaf2", "leaf3,Ethernet4,leaf3", "joins leaf3 to itself"),
        ("srv2,eth0", "tor9,eth0", "no role is known of tor9"),
        ("leaf3,Ethernet4,leaf2,Ethernet4,100G", "leaf3,Ethernet4,leaf2,Ethernet4,100X", "a rate"),
        ("leaf3,Ethernet4,leaf2", "leaf3,~//,leaf2", "expected a port such as Ethernet0"),
    ],
)
def test_a_wrong_cable_is_named(tmp_path: Path, before: str, after: str, message: str) -> None:
    cables = CABLES.replace(before, after)
    assert cables != CABLES
    assert message in _problem(tmp_path, cables=cables)


DRAWING = """\
graph {
  subgraph pod { "leaf1":"a" -- "spine1":"a";
  }
  leaf2:b -- spine1 -- "leaf-3":"x/1" [mtu=9];
  srv1 -- {leaf1}
}
"""


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ("", "", ["cables.dot:4: fabric.links[0].mtu", "cables.dot:4: fabric.links[1].mtu"]),
        ("[mtu=9]", "", []),
        ('"spine1":"a"', '"spine1":"a" [mtu=7]', [".dot:2: fabric.links[3].mtu"]),
        ("{leaf1}", "{leaf1} [mtu=7]", [".dot:1: fabric.links[2].mtu"]),
    ],
)
def test_an_edge_of_a_drawing_is_refused_at_its_line(
    tmp_path: Path, before: str, after: str, lines: list[str]
) -> None:
    """pydot has the edges of subgraphs last; one to a group has no line of its own."""
    (tmp_path / "cables.dot").write_text(DRAWING.replace(before, after))
    lab = LAB.replace("cables.csv", "cables.dot").replace("leaf: 65001-65100, ", "")
    if not lines:
        assert len(_lab(tmp_path, lab=lab).links) == 4
        return
    message = _problem(tmp_path, lab=lab)
    assert all(line in message for line in lines), message


def test_rows_after_links_of_the_file_keep_their_lines_and_files(tmp_path: Path) -> None:
    further = "  links: [{a: leaf9:x, b: spine1:x, mtu: 3}]\n"
    message = _problem(
        tmp_path,
        lab=LAB.replace("  nodes:\n", f"{further}  nodes:\n"),
        cables=CABLES.replace(",100G", ",fast"),
    )
    assert "lab.yaml:5: fabric.links[0].mtu" in message
    assert "cables.csv:6: fabric.links[5].rate" in message


def test_a_list_without_cables_is_refused_at_its_own_first_line(tmp_path: Path) -> None:
    header = CABLES.partition("\n")[0]
    assert "cables.csv:1: fabric.links: " in _problem(tmp_path, cables=f"{header}\n")


def test_a_rate_that_is_none_is_shown_in_the_list_of_cables(tmp_path: Path) -> None:
    assert "cables.csv:6: fabric.links[4].rate" in _problem(
        tmp_path, cables=CABLES.replace(",100G", ",fast")
    )


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("links: 10.1.0.0/24", "links: 10.1.0.0/29", "lab.yaml:12: addresses.links: 10.1.0.0/29"),
        ("servers: 10.2.0.0/20", "servers: 10.1.0.0/16", "overlaps links 10.1.0.0/24"),
        ("servers: 10.2.0.0/20", "servers: 10.2.0.0/31", "give addresses.servers a shorter prefix"),
        ("servers: 10.2.0.0/20", "servers: fd00::/64", "lab.yaml:13: addresses.servers: fd00::/64"),
        ("servers: 10.2.0.0/20", "servers: 10.2.0.1/20", "did you mean 10.2.0.0/20?"),
        ("leaf: 65001-65100", "leaf: 65001-65001", "need 2 AS numbers, and 65001-65001 has 1"),
        ("spine: 65200", "spine: 64999", "leaf1 and its neighbour spine1 have one AS number"),
        ("loopback: 10.0.0.77", "loopback: 10.0.0", "an address such as"),
        ("loopback: 10.0.0.77", "loopback: 127.0.0.1", "127.0.0.1 has loopback addresses"),
        ("links: 10.1.0.0/24", "links: 224.0.0.0/16", "224.0.0.0/16 has multicast or reserved"),
        ("servers: 10.2.0.0/20", "servers: 169.254.0.0/20", "has link-local addresses"),
        ("loopbacks: 10.0.0.0/24", "loopbacks: 0.0.0.0/1", "has reserved addresses"),
        ("asn: 64999", "asn: 23456", "is reserved (AS_TRANS, RFC 6793)"),
    ],
)
def test_numbers_that_clash_or_run_out_are_named(
    tmp_path: Path, before: str, after: str, message: str
) -> None:
    lab = LAB.replace(before, after)
    assert lab != LAB
    assert message in _problem(tmp_path, lab=lab)


def test_no_pool_hands_out_an_address_that_a_node_has(tmp_path: Path) -> None:
    fabric = _lab(tmp_path, lab=LAB.replace("10.0.0.77", "10.0.0.1"))
    loopbacks = [node.loopback for node in fabric.switches]
    assert len(set(loopbacks)) == len(loopbacks) == 5


def test_pools_may_be_one(tmp_path: Path) -> None:
    shared = "servers: 10.1.0.0/24"
    fabric = _lab(tmp_path, lab=LAB.replace("servers: 10.2.0.0/20", shared))
    ends = [str(end.ip) for link in fabric.links for end in (link.a, link.b)]
    assert len(set(ends)) == len(ends)
    assert all(end.startswith("10.1.0.") for end in ends)


def test_what_the_lab_is_does_not_depend_on_its_files(tmp_path: Path) -> None:
    fabric = _lab(tmp_path)
    spec = type(fabric.spec).model_validate(fabric.spec.model_dump(mode="json"))
    assert spec == fabric.spec
    assert plan(spec).links == fabric.links


@pytest.mark.parametrize(
    ("ports", "interfaces"),
    [
        (["Ethernet0", "swp1"], ["Ethernet0", "swp1"]),
        (["eth1/1", "eth1-1"], ["eth1-1~2", "eth1-1"]),
        (["eth1/1", "eth1:1"], ["eth1-1", "eth1-1~2"]),
        (["one/card-8/port-12", "two/card-8/port-12"], ["card-8-port-12", "two-card-8-po~2"]),
        (["HundredGigE0/0/0/12"], ["Hu0-0-0-12"]),
        (["et-0/0/0:1"], ["et-0-0-0-1"]),
        (["TenGigabitEthernet1/0/1", "TenGigabitEthernet1/0/2"], ["Te1-0-1", "Te1-0-2"]),
        (["lo"], ["port-lo"]),
    ],
)
def test_ports_become_interfaces_that_linux_takes(ports: list[str], interfaces: list[str]) -> None:
    assert list(interfaces_of(ports).values()) == interfaces


NODES = {"leaf*": {"role": "leaf"}, "spine*": {"role": "spine"}, "srv*": {"role": "server"}}


def _graph(*links: object, **keys: Any) -> Fabric:
    fabric = {"kind": "graph", "nodes": NODES, "links": list(links)}
    return plan(LabSpec.model_validate({"name": "drawn", "fabric": fabric, **keys}))


def _ends(fabric: Fabric) -> dict[str, tuple[str | None, str | None]]:
    return {link.name: (link.a.address, link.b.address) for link in fabric.links}


def test_a_port_without_a_name_is_not_called_as_another() -> None:
    with pytest.raises(ValidationError, match="leaf1 has 2 ports spine1"):
        _graph("leaf1 -- spine1", "leaf1:spine1 -- spine2:x", "srv1 -- leaf1")


def test_ports_named_after_long_neighbours_have_interfaces_that_differ() -> None:
    """A node's name has up to 40 characters, an interface's 15."""
    far = ["spine-of-hall-1-number-1", "spine-of-hall-2-number-1"]
    fabric = _graph(*(f"leaf1 -- {name}" for name in far), "srv1 -- leaf1")
    ports = [link.a for link in fabric.trunks]
    assert [port.name for port in ports] == far
    assert [port.interface for port in ports] == ["hall-1-number-1", "hall-2-number-1"]
    assert [link.b.interface for link in fabric.trunks] == ["leaf1", "leaf1"]


def test_addresses_of_a_link_are_of_its_ends_however_it_is_written() -> None:
    pair = ["10.1.0.9/30", "10.1.0.10/30"]
    fabric = _graph(
        {"a": "spine1:p1", "b": "leaf1:p1", "addresses": pair},
        {"a": "leaf1:p2", "b": "srv1:e0", "addresses": ["10.2.0.1/31", "10.2.0.0/31"]},
        "srv2:e0 -- leaf1:p3",
    )
    assert _ends(fabric) == {
        "srv1:e0": ("10.2.0.0/31", "10.2.0.1/31"),
        "srv2:e0": ("198.18.0.0/31", "198.18.0.1/31"),
        "leaf1:p1": ("10.1.0.10/30", "10.1.0.9/30"),
    }
    assert {"10.2.0.0/31", "198.18.0.0/30"} <= {
        prefix.prefix for prefix in fabric.prefixes_of["leaf1"]
    }


def test_no_pool_hands_out_an_address_that_a_link_has() -> None:
    links: list[object] = [
        {"a": "leaf1:p1", "b": "spine1:p1", "addresses": ["10.1.0.0/31", "10.1.0.1/31"]},
        {"a": "leaf1:p2", "b": "spine2:p1", "addresses": ["10.1.0.4/31", "10.1.0.5/31"]},
        "leaf2:p1 -- spine1:p2",
        "leaf2:p2 -- spine2:p2",
        "srv1:e0 -- leaf1:h1",
    ]
    fabric = _graph(*links, addresses={"links": "10.1.0.0/28"})
    ends = [link.a.address for link in fabric.trunks]
    assert ends == ["10.1.0.0/31", "10.1.0.4/31", "10.1.0.2/31", "10.1.0.6/31"]


def test_a_dual_lab_takes_of_each_family_what_is_given_of_it() -> None:
    link = {"a": "leaf1:p1", "b": "spine1:p1", "addresses": ["2001:db8::2/127", "2001:db8::3/127"]}
    nodes = {
        "leaf1": {"role": "leaf", "loopback": "2001:db8:1::1"},
        "spine1": {"role": "spine", "loopback": ["2001:db8:1::2"]},
        **NODES,
    }
    fabric = {"kind": "graph", "nodes": nodes, "links": [link, "srv1:e0 -- leaf1:h1"]}
    keys = {"name": "dual", "fabric": fabric, "addresses": {"family": "dual"}}
    made = plan(LabSpec.model_validate(keys))
    (trunk,), leaf = made.trunks, made.node("leaf1")
    assert (trunk.a.other_address, trunk.b.other_address) == ("2001:db8::2/127", "2001:db8::3/127")
    assert (trunk.a.address, trunk.b.address) == ("198.18.0.6/31", "198.18.0.7/31")
    assert (leaf.loopback, leaf.other_loopback) == ("198.18.0.2", "2001:db8:1::1")
    assert leaf.router_id == "198.18.0.2"
    spine = made.node("spine1")
    assert (spine.loopback, spine.other_loopback) == ("198.18.0.4", "2001:db8:1::2")
    (nic,) = made.nics("srv1")
    assert (nic.links[0].a.address, nic.links[0].a.other_address) == (
        "198.18.0.0/31",
        "2001:2::/127",
    )


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (["10.0.0.0/31", "10.0.0.0/31"], "expected two addresses of one network"),
        (["10.0.0.0/31", "10.0.0.3/31"], "expected two addresses of one network"),
        (["10.0.0.1", "10.0.0.0/31"], "an address with its length"),
        ([["10.0.0.0/31", "10.0.0.1/31"], ["10.0.0.2/31", "10.0.0.3/31"]], "at most one of ipv4"),
    ],
)
def test_addresses_that_do_not_reach_each_other_are_refused(
    links: list[object], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        _graph({"a": "leaf1:p1", "b": "spine1:p1", "addresses": links}, "srv1 -- leaf1")


def test_two_links_of_one_network_and_an_address_that_a_loopback_has_are_refused() -> None:
    one = {"a": "leaf1:p1", "b": "spine1:p1", "addresses": ["10.1.0.1/24", "10.1.0.2/24"]}
    other = {"a": "leaf1:p2", "b": "spine2:p1", "addresses": ["10.1.0.3/24", "10.1.0.4/24"]}
    with pytest.raises(ValidationError, match=r"2 links have addresses of 10\.1\.0\.0/24"):
        _graph(one, other, "srv1 -- leaf1")
    nodes = {"leaf1": {"loopback": "10.1.0.2"}}
    with pytest.raises(ValidationError, match=r"10\.1\.0\.2 is the address of 2 ports"):
        _graph(one, "srv1 -- leaf1", overrides={"nodes": nodes})


def test_two_links_of_a_nic_are_ports_that_share_its_address() -> None:
    ports = [{"a": f"srv1:e{n}", "b": f"leaf{n}:h1", "nic": 1} for n in (1, 2)]
    fabric = _graph(*ports, "srv1:e3 -- leaf1:h2", "leaf1 -- spine1", "leaf2 -- spine1")
    first, second = fabric.nics("srv1")
    assert [link.name for link in first.links] == ["srv1:e1", "srv1:e2"]
    assert len({link.a.address for link in first.links}) == 1
    assert all(link.a.is_shared for link in first.links)
    assert [link.name for link in second.links] == ["srv1:e3"]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"b": "leaf1:h2"}, "NIC 1 of srv1 has 2 ports on leaf1, leaf1"),
        (
            {"b": "leaf2:h2", "addresses": ["10.0.0.0/31", "10.0.0.1/31"]},
            "NIC 1 of srv1 has 2 ports and addresses of its links",
        ),
        ({"a": "leaf1:h9", "b": "leaf2:h2"}, "has a nic and joins two switches"),
    ],
)
def test_ports_that_are_no_nic_are_refused(second: dict[str, object], message: str) -> None:
    first = {"a": "srv1:e1", "b": "leaf1:h1", "nic": 1}
    with pytest.raises(ValidationError, match=message):
        _graph(first, {"a": "srv1:e2", "nic": 1, **second})


def test_four_ports_of_a_nic_are_reached_by_one_address_over_all_of_their_switches() -> None:
    ports = [{"a": f"srv1:e{n}", "b": f"leaf{n}:h1", "nic": 1} for n in (1, 2, 3, 4)]
    trunks = [f"leaf{n}:up -- spine1:s{n}" for n in (1, 2, 3, 4, 5)]
    fabric = _graph(*ports, "srv2:e1 -- leaf5:h1", *trunks)
    (nic,) = fabric.nics("srv1")
    assert len(nic.links) == 4
    (prefix,) = (prefix for prefix in fabric.prefixes if prefix.per_port)
    assert prefix.prefix == f"{nic.ip}/32"
    assert len(expected_routes(fabric)["spine1"][prefix.prefix]) == 4
    settings = node_settings(fabric, fabric.node("srv1"))
    assert settings[HASH_POLICY] == "1", "connections differ by their ports"
    assert port_settings(fabric, fabric.node("srv1"))["ipv4/ignore_routes_with_linkdown"] == "1"
    assert HASH_POLICY not in node_settings(fabric, fabric.node("srv2"))


def test_a_server_on_a_spine_leaves_the_fabric_without_tiers() -> None:
    assert _graph("leaf1 -- spine1", "srv1 -- leaf1").is_tiered
    assert not _graph("leaf1 -- spine1", "srv1 -- leaf1", "srv2 -- spine1").is_tiered


def test_identifiers_come_from_their_pool_and_pass_over_those_of_nodes() -> None:
    links = ("leaf1 -- spine1", "leaf2 -- spine1", "srv1 -- leaf1")
    nodes = {"leaf2": {"router_id": "10.5.0.0"}}
    pool = {"family": "ipv6", "router_ids": "10.5.0.0/30"}
    fabric = _graph(*links, addresses=pool, overrides={"nodes": nodes})
    assert {node.name: node.router_id for node in fabric.switches} == {
        "leaf1": "10.5.0.1",
        "spine1": "10.5.0.2",
        "leaf2": "10.5.0.0",
    }
    message = r"10\.5\.0\.0/31 has 1 BGP identifiers, and 2 switches need one"
    with pytest.raises(ValidationError, match=message):
        _graph(*links, addresses={**pool, "router_ids": "10.5.0.0/31"}, overrides={"nodes": nodes})


def test_identifiers_of_an_ipv4_lab_come_from_its_pool_too() -> None:
    fabric = _graph("leaf1 -- spine1", "srv1 -- leaf1", addresses={"router_ids": "10.5.0.0/30"})
    assert [node.router_id for node in fabric.switches] == ["10.5.0.0", "10.5.0.1"]


def test_a_nic_takes_of_a_pool_what_is_not_given_of_that_family() -> None:
    ends = ["2001:db8::/127", "2001:db8::1/127"]
    links = [{"a": "srv1:e0", "b": "leaf1:h1", "addresses": ends}, "leaf1 -- spine1"]
    fabric = _graph(*links, addresses={"family": "dual"})
    (nic,) = fabric.nics("srv1")
    port = nic.links[0].a
    assert (port.address, port.other_address) == ("198.18.0.0/31", "2001:db8::/127")
    prefixes = {prefix.prefix for prefix in fabric.prefixes_of["leaf1"]}
    assert {"198.18.0.0/30", "2001:db8::/127"} <= prefixes


def test_a_column_that_a_list_of_cables_does_not_have_is_refused(tmp_path: Path) -> None:
    further = CABLES.replace("\n", ",3m\n").replace("rate,3m", "rate,length")
    assert "unknown column 'length'" in _problem(tmp_path, cables=further)
    assert "unknown column 'Speed'" in _problem(tmp_path, cables=CABLES.replace("rate", "Speed"))


def test_a_further_column_is_no_key_of_a_link(tmp_path: Path) -> None:
    path = tmp_path / "open.csv"
    path.write_text(CABLES.replace("\n", ",3m\n").replace("rate,3m", "rate,length"))
    rows = read_cables(path, replace(CABLE_FORMAT, is_open=True)).data["links"]
    assert isinstance(rows, list)
    assert rows[0] == {"a": "leaf1:Ethernet0", "b": "spine1:eth1/1"}
