"""How many switches a path of a fabric without tiers has."""

from __future__ import annotations

import pytest

from rocelab.fabrics.hops import most_switches
from rocelab.planning.routes import spread, unreachable
from tests.helpers.labs import planned


def ring(switches: int) -> list[tuple[int, int]]:
    return [(switch, (switch + 1) % switches) for switch in range(switches)]


@pytest.mark.parametrize("switches", [3, 4, 9, 40])
def test_a_ring_that_lost_a_link_is_a_path_over_all_its_switches(switches: int) -> None:
    assert most_switches(range(switches), ring(switches)) == switches


def test_parts_that_are_apart_have_paths_of_their_own() -> None:
    chain = [(10 + n, 11 + n) for n in range(8)]

    assert most_switches([0, 1, *range(10, 19)], [(0, 1), *chain]) == 11


def test_no_planned_path_is_longer() -> None:
    fabric = planned("half-migrated")
    for home in ("old-leaf1", "new-leaf16", "border1"):
        reached = spread(fabric, (home,))
        steps = {home: 1}
        while len(steps) <= len(reached):
            for name, links in reached.items():
                nears = [link.far(name).node for link in links]
                if nears[0] in steps:
                    steps.setdefault(name, steps[nears[0]] + 1)
        assert max(steps.values()) <= fabric.most_hops


def test_every_switch_of_the_lab_that_ships_has_every_route() -> None:
    assert unreachable(planned("half-migrated")) == ()
