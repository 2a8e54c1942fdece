"""Links that are alike: a symmetry maps them to each other; in planned fabrics a whole tier is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given

from rocelab.planning.fabric import Fabric, Link, Prefix
from rocelab.planning.symmetry import alike
from tests.helpers.labs import planned
from tests.helpers.networks import networks, ring


def alike_in(fabric: Fabric) -> list[tuple[Link, ...]]:
    return alike(fabric, racks_of(fabric), destinations_of(fabric))


def racks_of(fabric: Fabric) -> frozenset[str]:
    return frozenset(link.b.node for link in fabric.links if not link.is_between_switches)


def destinations_of(fabric: Fabric) -> Sequence[tuple[str, ...]]:
    racks = racks_of(fabric)
    origins = dict.fromkeys(prefix.origins for prefix in fabric.prefixes)
    return [origin for origin in origins if not racks.isdisjoint(origin)]


def ends(link: Link) -> frozenset[str]:
    return frozenset((link.a.node, link.b.node))


def symmetries(fabric: Fabric) -> Iterator[Mapping[str, str]]:
    """Every one, by trying all permutations of the switches."""
    racks, edges = racks_of(fabric), Counter(map(ends, fabric.trunks))
    destinations = Counter(map(frozenset, destinations_of(fabric)))
    names = [node.name for node in fabric.switches]
    for images in permutations(names):
        image = dict(zip(names, images, strict=True))
        if (
            moved(racks, image) == racks
            and Counter(moved(pair, image) for pair in edges.elements()) == edges
            and Counter(moved(element, image) for element in destinations.elements())
            == destinations
        ):
            yield image


def moved(switches: frozenset[str], image: Mapping[str, str]) -> frozenset[str]:
    return frozenset(image[switch] for switch in switches)


def check(fabric: Fabric) -> None:
    images = list(symmetries(fabric))
    sets = alike_in(fabric)
    assert sorted(link.name for links in sets for link in links) == sorted(
        link.name for link in fabric.trunks
    )
    for first, *others in sets:
        reached = {moved(ends(first), image) for image in images}
        assert set(map(ends, others)) <= reached


@given(networks())
def test_links_that_are_alike_are_mapped_to_each_other_by_a_symmetry(fabric: Fabric) -> None:
    check(fabric)


@pytest.mark.parametrize(
    "pairs",
    [
        ("ab", "bc", "ca", "de", "ef", "fg", "gd"),  # two rings
        ("ab", "bc", "ca", "de", "ef", "fd", "ad", "be", "cf"),  # a prism
    ],
)
def test_what_neighbours_do_not_tell_apart_is_not_alike_for_that(pairs: tuple[str, ...]) -> None:
    """Each switch has as many neighbours as any other, these too, and so on."""
    check(ring(*pairs))
    check(replace(ring(*pairs), prefixes=()))


def test_a_switch_without_servers_is_not_like_one_with_them() -> None:
    fabric = ring("ab", "ac")
    wired = tuple(link for link in fabric.links if link.is_between_switches or link.b.node == "b")
    shared = (Prefix("198.18.0.0/24", ("b", "c")),)
    assert [len(links) for links in alike_in(replace(fabric, prefixes=shared))] == [2]
    assert [len(links) for links in alike_in(replace(fabric, links=wired, prefixes=shared))] == [
        1,
        1,
    ]


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        ("zone-252x18", [4536]),
        ("rail-superpod", [1024]),
        ("hpn-pod", [960, 14_400]),
        pytest.param("fat-tree-48", [27_648, 27_648], marks=pytest.mark.long),
        pytest.param("meta-32k", [5184, 36_288], marks=pytest.mark.long),
    ],
)
def test_all_links_of_a_tier_of_a_planned_fabric_are_alike(name: str, sets: list[int]) -> None:
    assert sorted(map(len, alike_in(planned(name)))) == sets
