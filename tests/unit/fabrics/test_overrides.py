"""Exceptions from regular fabrics."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric


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


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"remove": ["ctsw9"]}, "there is no node ctsw9"),
        ({"remove": ["rtsw1:ctsw9"]}, "there is no link rtsw1:ctsw9"),
        ({"links": {"rtsw1:nope": {"rate": "100G"}}}, "there is no link rtsw1:nope"),
        ({"nodes": {"rtsw9": {"asn": 7}}}, "there is no node rtsw9"),
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
