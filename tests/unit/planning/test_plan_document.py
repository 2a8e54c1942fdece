"""`plan --json`: its contract with programs, for every shape of fabric."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.model import LabSpec, RoutingSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.document import (
    expected_widths,
    group_of,
    origins_of,
    plan_document,
    uplinks_by_tier,
)
from rocelab.planning.fabric import Fabric
from rocelab.planning.routes import expected_routes, expected_width
from tests.helpers.labs import planned


def fabric_of(max_paths: int = 128, **clos: int) -> Fabric:
    return build_fabric(
        LabSpec(name="t-plan", fabric=ClosSpec(**clos), routing=RoutingSpec(max_paths=max_paths))
    )


def document_of(fabric: Fabric) -> dict[str, Any]:
    return json.loads("".join(plan_document(fabric)))


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    zones = draw(st.integers(1, 3))
    small = st.integers(1, 3)
    return fabric_of(
        max_paths=draw(st.sampled_from([1, 2, 128])),
        zones=zones,
        racks=draw(small),
        spines=draw(small),
        links_per_pair=draw(small),
        servers_per_rack=draw(st.integers(0, 2)),
        atsws=draw(small) if zones > 1 else 0,
        links_per_atsw=draw(small) if zones > 1 else 1,
    )


@given(fabrics())
def test_the_width_of_a_group_is_that_of_each_of_its_switches_and_prefixes(fabric: Fabric) -> None:
    by_group = {
        origins: {width.group: width.width for width in widths}
        for origins, widths in expected_widths(fabric).items()
    }
    origins_by_prefix = {prefix.prefix: origins_of(fabric, prefix) for prefix in fabric.prefixes}
    for name, routes in expected_routes(fabric).items():
        at = group_of(fabric.node(name))
        for prefix, links in routes.items():
            assert by_group[origins_by_prefix[prefix]][at] == expected_width(fabric, links)


@given(fabrics())
def test_the_switches_counted_are_those_that_learn_the_prefix(fabric: Fabric) -> None:
    learnt: dict[str, int] = {}
    for routes in expected_routes(fabric).values():
        for prefix in routes:
            learnt[prefix] = learnt.get(prefix, 0) + 1
    for entry in document_of(fabric)["ecmp"]:
        switches = sum(width["switches"] for width in entry["widths"])
        assert switches == learnt.get(entry["prefix"], 0)


def test_the_keys_that_programs_rely_on_are_there() -> None:
    document = document_of(fabric_of(racks=4, spines=2, servers_per_rack=1))

    assert set(document) == {
        *(
            "lab",
            "numbered",
            "uplinks",
            "nodes",
            "links",
            "sessions",
            "prefixes",
            "ecmp",
            "addresses",
            "warnings",
        ),
    }
    assert document["uplinks"] == [
        {
            "role": "rtsw",
            "switches": 4,
            "down_bps": 400 * 10**9,
            "up_bps": 800 * 10**9,
            "ratio": "1:2",
        }
    ]
    by_name = {node["name"]: node for node in document["nodes"]}
    assert set(by_name["rtsw1"]) == {"name", "role", "zone", "asn", "loopback", "hash_seed"}
    assert by_name["rtsw1"]["role"] == "rtsw"
    assert by_name["rtsw1"]["asn"] == 4_200_000_002
    assert by_name["srv1-1"]["asn"] is None
    assert document["links"][0] == {
        "name": "srv1-1:rtsw1",
        "a": {"node": "srv1-1", "interface": "rtsw1", "address": "198.18.0.0/31"},
        "b": {"node": "rtsw1", "interface": "srv1-1", "address": "198.18.0.1/31"},
        "rate_bps": 400_000_000_000,
        "mtu": 9000,
    }
    assert document["sessions"][0] == {"a": "rtsw1", "b": "ctsw1", "link": "rtsw1:ctsw1"}
    assert len(document["sessions"]) == 8
    assert {"prefix": "198.18.0.0/30", "origins": ["rtsw1"]} in document["prefixes"]
    rack = next(entry for entry in document["ecmp"] if entry["origins"] == ["rtsw1"])
    assert rack["widths"] == [
        {"role": "ctsw", "zone": 1, "switches": 2, "width": 1},
        {"role": "rtsw", "zone": 1, "switches": 3, "width": 2},
    ]


@pytest.mark.parametrize(
    ("lab", "ratios"),
    [
        ("zone-1-1", {"rtsw": "1:1"}),
        ("zone-1-1125", {"rtsw": "1:1.125"}),
        ("meta-32k", {"rtsw": "1:1.125", "ctsw": "7:1"}),
        ("zones-28-24k", {"rtsw": "1:1", "ctsw": "2.783:1"}),
        ("hpn-pod", {"tor": "1.067:1", "agg": "15:1"}),
        ("fat-tree-4", {"edge": "1:1", "agg": "1:1"}),
    ],
)
def test_the_uplink_ratios_of_a_lab_are_those_it_is_known_by(
    lab: str, ratios: dict[str, str]
) -> None:
    tiers = uplinks_by_tier(planned(lab))
    assert {tier.role.name: tier.ratio for tier in tiers} == ratios


def test_an_aggregator_belongs_to_no_zone() -> None:
    document = document_of(fabric_of(zones=2, racks=1, spines=1, atsws=1))

    zones = {node["name"]: node["zone"] for node in document["nodes"]}
    assert zones["atsw1"] is None
    assert zones["z2-ctsw1"] == 2


def test_a_port_of_an_unnumbered_link_has_no_address() -> None:
    spec = LabSpec.model_validate(
        {
            "name": "t-plan",
            "fabric": {"kind": "clos", "racks": 1, "spines": 1},
            "routing": {"numbering": "unnumbered"},
        }
    )
    links = document_of(build_fabric(spec))["links"]
    assert [link["a"]["address"] for link in links] == ["198.18.0.0/31", None]


@pytest.mark.parametrize("racks", [1, 4])
def test_every_node_and_link_has_a_line_of_its_own(racks: int) -> None:
    fabric = fabric_of(racks=racks, spines=2)
    lines = "".join(plan_document(fabric)).splitlines()
    assert sum(line.startswith('{"name"') for line in lines) == len(fabric.nodes) + len(
        fabric.links
    )


def test_the_same_spec_gives_the_same_bytes() -> None:
    shape = {"zones": 2, "racks": 3, "spines": 2, "atsws": 2}
    assert list(plan_document(fabric_of(**shape))) == list(plan_document(fabric_of(**shape)))
