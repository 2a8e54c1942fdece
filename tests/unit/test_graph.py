"""Pictures of fabrics: what is drawn, what is only counted, and that nothing is left out."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from labs.graph import MAX_PER_TIER, mermaid, svg
from labs.plan.build import build_fabric
from labs.plan.fabric import Fabric
from labs.spec.fabrics import ClosSpec
from labs.spec.model import LabSpec, LinksSpec

SVG = "{http://www.w3.org/2000/svg}"

SHAPES = {
    "zone-small": ClosSpec(racks=4, spines=4, servers_per_rack=2),
    "no-servers": ClosSpec(racks=1, spines=1, servers_per_rack=0),
    "zones": ClosSpec(zones=2, racks=2, spines=2, atsws=2, links_per_pair=3),
    "wide": ClosSpec(racks=252, spines=18, servers_per_rack=5),
    "many-zones": ClosSpec(zones=8, racks=20, spines=6, atsws=10, links_per_atsw=2),
}


def fabric_of(shape: str) -> Fabric:
    return build_fabric(
        LabSpec(name=shape, fabric=SHAPES[shape], links=LinksSpec.model_validate({"rate": "100G"}))
    )


def texts(document: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(document).iter(f"{SVG}text")]


def boxes(document: str) -> list[tuple[str, float, float, float, float]]:
    return [
        (rect.attrib["class"], *(float(rect.attrib[k]) for k in ("x", "y", "width", "height")))
        for rect in ElementTree.fromstring(document).iter(f"{SVG}rect")
        if rect.attrib.get("class", "").startswith("box")
    ]


@pytest.mark.parametrize("shape", ["zone-small", "no-servers", "zones"])
def test_a_small_fabric_shows_every_node_with_its_as_number_and_prefix(shape: str) -> None:
    fabric = fabric_of(shape)
    drawn = texts(svg(fabric))
    for node in fabric.nodes:
        assert drawn.count(node.name) == 1
    for node in fabric.switches:
        position = drawn.index(node.name)
        assert drawn[position + 1 : position + 3] == [
            f"AS {node.asn}",
            fabric.prefixes_of[node.name][0].prefix,
        ]


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
        role: {y for kind, _, y, _, _ in boxes(svg(fabric_of("zones")))[:-1] if role in kind}
        for role in ("atsw", "ctsw", "rtsw", "server")
    }
    assert all(len(heights) == 1 for heights in rows.values())
    assert [min(heights) for heights in rows.values()] == sorted(
        min(heights) for heights in rows.values()
    )


@pytest.mark.parametrize("shape", ["wide", "many-zones"])
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


@pytest.mark.parametrize("draw", [svg, mermaid])
def test_the_same_fabric_gives_the_same_picture(draw: object) -> None:
    assert callable(draw)
    assert draw(fabric_of("zones")) == draw(fabric_of("zones"))
