"""Fabrics of kind `graph`: what links become, and what is refused, with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.base.errors import SpecError
from rocelab.fabrics.ports import interfaces_of
from rocelab.labfile.load import load_spec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.planning.routes import expected_routes

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


def test_a_rate_that_is_none_is_shown_in_the_list_of_cables(tmp_path: Path) -> None:
    assert "cables.csv:6: fabric.links[4].rate" in _problem(
        tmp_path, cables=CABLES.replace(",100G", ",fast")
    )


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("links: 10.1.0.0/24", "links: 10.1.0.0/29", "lab.yaml:12: addresses.links: 10.1.0.0/29"),
        ("servers: 10.2.0.0/20", "servers: 10.1.0.0/16", "overlaps links 10.1.0.0/24"),
        ("servers: 10.2.0.0/20", "servers: 10.2.0.1/20", "did you mean 10.2.0.0/20?"),
        ("leaf: 65001-65100", "leaf: 65001-65001", "need 2 AS numbers, and 65001-65001 has 1"),
        ("spine: 65200", "spine: 64999", "leaf1 and its neighbour spine1 have one AS number"),
        ("loopback: 10.0.0.77", "loopback: 10.0.0", "an address such as"),
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
        (["HundredGigE0/0/0/12"], ["Hu0-0-0-12"]),
        (["et-0/0/0:1"], ["et-0-0-0-1"]),
        (["TenGigabitEthernet1/0/1", "TenGigabitEthernet1/0/2"], ["Te1-0-1", "Te1-0-2"]),
        (["lo"], ["port-lo"]),
    ],
)
def test_ports_become_interfaces_that_linux_takes(ports: list[str], interfaces: list[str]) -> None:
    assert list(interfaces_of(ports).values()) == interfaces
