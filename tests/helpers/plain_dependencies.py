"""Cyclic buffer dependencies found the plain way: every route of every prefix, one after the other,
anew after each failure. What `rocelab.planning.dependencies` finds is compared with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from rocelab.planning.fabric import DirectedLink, Fabric, Link
from rocelab.planning.routes import expected_routes


def depends_on_itself(fabric: Fabric, without: tuple[Link, ...] = ()) -> bool:
    """Whether some links depend on each other in a ring once those of `without` have failed."""
    left = replace(fabric, links=tuple(link for link in fabric.links if link not in without))
    sorter: TopologicalSorter[DirectedLink] = TopologicalSorter()
    for onward, arriving in dependencies(left):
        sorter.add(onward, arriving)
    try:
        sorter.prepare()
    except CycleError:
        return True
    return False


def dependencies(fabric: Fabric) -> Iterator[tuple[DirectedLink, DirectedLink]]:
    """Each link that packets of servers cross, after the one that they came by."""
    routes = expected_routes(fabric)
    sources = {link.b.node for link in fabric.links if not link.is_between_switches}
    for prefix in fabric.prefixes:
        if sources.isdisjoint(prefix.origins):
            continue
        frontier, seen = list(sources), set(sources)
        while frontier:
            node = frontier.pop()
            for link in routes[node].get(prefix.prefix, ()):
                at = link.far(node).node
                for onward in routes[at].get(prefix.prefix, ()):
                    yield DirectedLink(onward, at), DirectedLink(link, node)
                if at not in seen:
                    seen.add(at)
                    frontier.append(at)


def failures(fabric: Fabric) -> Iterator[tuple[Link, ...]]:
    """None, each link between switches alone, and each two of them."""
    for count in range(3):
        yield from combinations(fabric.trunks, count)
