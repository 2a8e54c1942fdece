"""The Clos in a graph: what a fabric draws is found again, and what is no Clos is named."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.base.errors import InputError, SpecError
from rocelab.fabrics.kinds.clos import ClosSpec
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import build_fabric
from rocelab.planning.shape import DrawnGraph, clos_in


def drawn(spec: ClosSpec) -> DrawnGraph:
    fabric = build_fabric(LabSpec(name="drawn", fabric=spec))
    return DrawnGraph(
        {node.name: node.role.tier for node in fabric.nodes},
        [(link.b.node, link.a.node) for link in fabric.links],
    )


@given(
    zones=st.integers(1, 2),
    racks=st.integers(1, 4),
    spines=st.integers(1, 3),
    links_per_pair=st.integers(1, 3),
    servers_per_rack=st.integers(0, 3),
    nics_per_server=st.integers(1, 2),
    atsws=st.integers(1, 2),
    links_per_atsw=st.integers(1, 2),
)
def test_what_is_drawn_is_found_again(**counts: int) -> None:
    spec = ClosSpec.model_validate(counts)
    shape = clos_in(drawn(spec))
    if spec.servers_per_rack == 0:
        spec = spec.model_copy(update={"nics_per_server": 1})
    assert shape == spec


BASE = drawn(ClosSpec(racks=3, spines=2, servers_per_rack=2))


@pytest.mark.parametrize(
    ("cables", "said"),
    [
        ([*BASE.cables, ("rtsw1", "rtsw2")], "a cable joins leaf rtsw1 and leaf rtsw2"),
        ([*BASE.cables, ("srv1-1", "ctsw1")], "a cable joins server srv1-1 and spine ctsw1"),
        ([*BASE.cables, ("srv1-1", "rtsw2")], "server srv1-1 is on rtsw1 and rtsw2"),
        ([*BASE.cables, ("srv1-1", "rtsw1")], "server srv1-1 has 2 cables, others 1"),
        ([*BASE.cables, ("rtsw1", "ctsw1")], "2 cables join rtsw1 and ctsw1, others 1"),
        (
            [pair for pair in BASE.cables if pair != ("ctsw2", "rtsw3")],
            "0 cables join rtsw3 and ctsw2, others 1",
        ),
        (
            [pair for pair in BASE.cables if "srv3-2" not in pair],
            "server srv3-2 is on no leaf",
        ),
        ([*BASE.cables, ("x", "y")], "no path leads from x to a leaf; no path leads from y"),
        (
            [pair for pair in BASE.cables if pair[0] != "ctsw1"],
            "spine ctsw1 is on no leaf",
        ),
        (
            [pair for pair in BASE.cables if not {"ctsw1", "ctsw2"}.intersection(pair)],
            "leaf rtsw1 is on no spine",
        ),
    ],
)
def test_each_part_that_is_no_clos_is_named(cables: list[tuple[str, str]], said: str) -> None:
    with pytest.raises(InputError, match=said):
        clos_in(DrawnGraph(BASE.tier, cables))


def test_a_graph_without_spines_is_none() -> None:
    with pytest.raises(InputError, match="3 leaves and 0 spines"):
        clos_in(DrawnGraph({"a": 1, "b": 1, "c": 1}, [("a", "b"), ("b", "c")]))


def test_a_clos_that_is_too_large_for_a_lab_file_is_named() -> None:
    leaves, spines = ("l1", "l2"), ("s1", "s2")
    servers = [(f"h{leaf}-{number}", leaf) for leaf in leaves for number in range(17)]
    cables = [*servers, *((leaf, spine) for leaf in leaves for spine in spines)]
    tier = dict.fromkeys((name for name, _ in servers), 0)
    tier |= dict.fromkeys(leaves, 1) | dict.fromkeys(spines, 2)
    with pytest.raises(SpecError, match=r"servers_per_rack: .* from 0 to 16, got 17"):
        clos_in(DrawnGraph(tier, cables))
