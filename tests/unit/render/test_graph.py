"""Pictures of fabrics: the drawn parts, the counted parts, and that nothing is missing."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from ipaddress import IPv4Address, IPv4Network
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from rocelab.fabrics.fabric_spec import FabricSpec
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.fabrics.kinds.fat_tree import FatTreeSpec
from rocelab.fabrics.kinds.hpn import HpnSpec
from rocelab.fabrics.kinds.rail import RailSpec
from rocelab.labfile.model import LabSpec, LinksSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.fabric import Fabric
from rocelab.render.graph import mermaid, svg
from rocelab.render.sketch import MAX_PER_TIER, sketch
from tests.helpers.labs import planned

SVG = "{http://www.w3.org/2000/svg}"

SHAPES: dict[str, FabricSpec] = {
    "zone-small": ClosSpec(racks=4, spines=4, servers_per_rack=2),
    "no-servers": ClosSpec(racks=1, spines=1, servers_per_rack=0),
    "zones": ClosSpec(zones=2, racks=2, spines=2, atsws=2, links_per_pair=3),
    "wide": ClosSpec(racks=252, spines=18, servers_per_rack=5),
    "many-zones": ClosSpec(zones=8, racks=20, spines=6, atsws=10, links_per_atsw=2),
    "rail": RailSpec(kind="rail"),
    "wide-rail": RailSpec(kind="rail", units=9, servers_per_unit=32, rails=8, spines=16),
    "two-planes": HpnSpec(kind="hpn", rails=2, cores=2),
    "one-plane": HpnSpec(kind="hpn", planes=1, aggs=4),
    "one-port": HpnSpec(kind="hpn", planes=1, ports_per_nic=1, servers_per_segment=1),
    "pod": HpnSpec(kind="hpn", segments=15, servers_per_segment=99, rails=8, aggs=60, cores=8),
    "fat-tree": FatTreeSpec(kind="fat-tree"),
    "large-fat-tree": FatTreeSpec(kind="fat-tree", k=16),
}


@cache
def fabric_of(shape: str) -> Fabric:
    return build_fabric(
        LabSpec(name=shape, fabric=SHAPES[shape], links=LinksSpec.model_validate({"rate": "100G"}))
    )


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def boxes(document: str) -> list[tuple[str, float, float, float, float]]:
    return [
        (
            rect.attrib["class"],
            float(rect.attrib["x"]),
            float(rect.attrib["y"]),
            float(rect.attrib["width"]),
            float(rect.attrib["height"]),
        )
        for rect in ElementTree.fromstring(document).iter(f"{SVG}rect")
        if rect.attrib.get("class", "").startswith("box")
    ]


SMALL = ["zone-small", "no-servers", "zones", "rail", "two-planes", "one-plane", "fat-tree"]


@pytest.mark.parametrize("shape", SMALL)
def test_a_small_fabric_shows_every_node_with_its_as_number_and_prefix(shape: str) -> None:
    fabric = fabric_of(shape)
    drawn = texts(svg(fabric))
    for node in fabric.nodes:
        assert drawn.count(node.name) == 1
    for node in fabric.switches:
        position = drawn.index(node.name)
        asn, prefix = drawn[position + 1 : position + 3]
        assert asn == f"AS {node.asn}"
        assert prefix in {prefix.prefix for prefix in fabric.prefixes_of[node.name]}
    for server in fabric.servers:
        nic = IPv4Address(fabric.nics(server.name)[0].ip)
        leaves = {link.b.node for link in fabric.nics(server.name)[0].links}
        assert all(nic in IPv4Network(drawn[drawn.index(leaf) + 2]) for leaf in leaves)


@pytest.mark.parametrize("shape", SHAPES)
def test_no_two_boxes_overlap_and_all_lie_inside_the_picture(shape: str) -> None:
    document = svg(fabric_of(shape))
    root = ElementTree.fromstring(document)
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    placed = boxes(document)
    for i, (_, x, y, w, h) in enumerate(placed):
        assert x >= 0 and x + w <= width and y >= 0 and y + h <= height
        for _, other_x, other_y, other_w, other_h in placed[:i]:
            apart_x = x >= other_x + other_w or other_x >= x + w
            apart_y = y >= other_y + other_h or other_y >= y + h
            assert apart_x or apart_y


def test_tiers_are_rows_with_the_aggregators_on_top() -> None:
    rows = {
        tier: {y for kind, _, y, _, _ in boxes(svg(fabric_of("zones")))[:-1] if tier in kind}
        for tier in ("tier3", "tier2", "tier1", "tier0")
    }
    assert all(len(heights) == 1 for heights in rows.values())
    assert [min(heights) for heights in rows.values()] == sorted(
        min(heights) for heights in rows.values()
    )


@pytest.mark.parametrize("shape", ["wide", "many-zones", "wide-rail", "pod", "large-fat-tree"])
def test_what_is_not_drawn_is_counted(shape: str) -> None:
    fabric = fabric_of(shape)
    drawn = texts(svg(fabric))
    names = {node.name for node in fabric.nodes}
    counted = sum(
        int((match[1] or match[2]).replace(",", ""))
        for text in drawn
        if (match := re.fullmatch(r"… ([\d,]+) more|([\d,]+) (?:switches|servers)", text))
    )
    assert len(names.intersection(drawn)) + counted == len(names)


def test_a_wide_tier_shows_its_first_nodes_and_its_last() -> None:
    drawn = texts(svg(fabric_of("wide")))
    racks = [text for text in drawn if text.startswith("rtsw")]
    assert racks == [*(f"rtsw{i}" for i in range(1, MAX_PER_TIER - 1)), "rtsw252"]
    assert "… 245 more" in drawn
    assert "rack switches: 252" in drawn


def test_parallel_links_are_one_line_and_a_count_with_the_rate() -> None:
    document = svg(fabric_of("zones"))
    assert {"1 x 100G per pair", "3 x 100G per pair", "1 x 400G per pair"} <= set(texts(document))
    paths = [p.attrib["d"] for p in ElementTree.fromstring(document).iter(f"{SVG}path")]
    assert len(paths) == len(set(paths))


def test_mermaid_joins_every_pair_of_neighbours_once_and_counts_parallel_links() -> None:
    text = mermaid(fabric_of("zones"))
    edges = re.findall(r"^  (\w+) ---(?:\|(\d+)\|)? (\w+)$", text, re.MULTILINE)
    assert len(edges) == len({(upper, lower) for upper, _, lower in edges}) == 8 + 8 + 4
    assert ("z1_ctsw1", "3", "z1_rtsw1") in edges
    assert ("atsw1", "", "z2_ctsw2") in edges
    assert text.count("subgraph") == 2


def test_mermaid_declares_every_node_that_its_edges_name() -> None:
    text = mermaid(fabric_of("many-zones"))
    declared = set(re.findall(r"^ +(\w+)\[\".*\"\]:::", text, re.MULTILINE))
    for upper, lower in re.findall(r"^  (\w+) -(?:--|\.-)(?:\|\d+\|)? (\w+)$", text, re.MULTILINE):
        assert {upper, lower} <= declared
    assert len(declared) < 80


def frames(document: str) -> dict[str, set[str]]:
    """The switches inside each frame, by the frame's title."""
    root = ElementTree.fromstring(document)
    titles = [text.text or "" for text in root.iter(f"{SVG}text") if text.get("class") == "zone"]
    edges = [rect.attrib for rect in root.iter(f"{SVG}rect") if rect.get("class") == "frame"]
    names = [text for text in root.iter(f"{SVG}text") if text.get("class") == "name"]
    inside: dict[str, set[str]] = {}
    for title, edge in zip(titles, edges, strict=True):
        x, y, width, height = (float(edge[key]) for key in ("x", "y", "width", "height"))
        inside[title] = {
            name.text or ""
            for name in names
            if x < float(name.attrib["x"]) < x + width
            and y < float(name.attrib["y"]) < y + height
            and "srv" not in (name.text or "")
        }
    return inside


def test_units_hold_leaves_and_spines_stand_above_them() -> None:
    assert frames(svg(fabric_of("rail"))) == {
        f"unit {unit}": {f"su{unit}-leaf{leaf}" for leaf in range(1, 5)} for unit in (1, 2)
    }


def test_segments_hold_tors_and_planes_hold_aggregation() -> None:
    assert frames(svg(fabric_of("two-planes"))) == {
        "plane 1": {"p1-agg1", "p1-agg2"},
        "plane 2": {"p2-agg1", "p2-agg2"},
        "segment 1": {"s1-tor1a", "s1-tor1b", "s1-tor2a", "s1-tor2b"},
        "segment 2": {"s2-tor1a", "s2-tor1b", "s2-tor2a", "s2-tor2b"},
    }


def test_pods_hold_edges_and_aggregation() -> None:
    pods = frames(svg(fabric_of("fat-tree")))
    assert pods["pod 4"] == {"p4-agg1", "p4-agg2", "p4-edge1", "p4-edge2"}
    assert list(pods) == ["pod 1", "pod 2", "pod 3", "pod 4"]


def test_a_server_on_several_switches_shows_its_nics_in_order() -> None:
    def ports(shape: str) -> list[str]:
        root = ElementTree.fromstring(svg(fabric_of(shape)))
        return [t.text or "" for t in root.iter(f"{SVG}text") if t.get("class") == "port"]

    assert ports("rail")[:4] == ["1", "2", "3", "4"]
    assert ports("two-planes")[:4] == ["1", "1", "2", "2"]
    assert ports("zone-small") == []


def test_tors_that_share_nics_stand_close_together() -> None:
    tors = [box for box in boxes(svg(fabric_of("two-planes"))) if "tier1" in box[0]][:4]
    gaps = [right[1] - left[1] - left[3] for left, right in pairwise(tors)]
    assert gaps[0] == gaps[2] < gaps[1]


def test_links_of_two_planes_have_two_colours() -> None:
    root = ElementTree.fromstring(svg(fabric_of("two-planes")))
    classes = Counter(path.attrib["class"] for path in root.iter(f"{SVG}path"))
    assert classes["wire plane1"] == classes["wire plane2"] == 8


@pytest.mark.parametrize("shape", SHAPES)
def test_every_kind_of_fabric_is_said_in_mermaid_with_nothing_twice(shape: str) -> None:
    text = mermaid(fabric_of(shape))
    declared = re.findall(r"^ +(\w+)\[\".*\"\]:::", text, re.MULTILINE)
    edges = re.findall(r"^  (\w+) -(?:--|\.-)(?:\|\d+\|)? (\w+)$", text, re.MULTILINE)
    assert len(set(declared)) == len(declared)
    assert {end for edge in edges for end in edge} == set(declared)


@pytest.mark.parametrize("draw", [svg, mermaid])
def test_the_same_fabric_gives_the_same_picture(draw: object) -> None:
    assert callable(draw)
    assert draw(fabric_of("zones")) == draw(fabric_of("zones"))


def test_nodes_outside_of_zones_are_drawn_with_those_inside() -> None:
    fabric = planned("half-migrated")

    drawn = Counter(name for cell in sketch(fabric).cells for name in cell.nodes)

    assert drawn == Counter(node.name for node in fabric.nodes)
