"""Cyclic buffer dependencies: whether pauses of lossless classes could wait for each other forever.

A packet that a switch holds for an outgoing link holds memory of the port that it came in by, so a
paused link can pause the links that feed it. Where such dependencies form a cycle, a deadlock is
possible; that there is a cycle is necessary for one, not sufficient (Hu et al., "Tagger", CoNEXT
2017). A packet keeps its class on its way, so all lossless classes have the same dependencies.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from itertools import combinations

from rocelab.plan.fabric import DirectedLink, Fabric, Link
from rocelab.plan.routes import NextHops, expected_routes

MOST_TRUNKS_OF_PAIRS = 40
"""Links between switches of a fabric in which each pair may fail: 780 pairs take seconds."""

MOST_STEPS = 2_000_000
"""What a search may take: prefixes of servers times links between switches, of all routes that it
follows. About a minute."""


@dataclass(frozen=True, slots=True)
class Cycle:
    """Links that can pause each other in turn, in the order in which packets cross them; `without`
    has the links whose failure makes the routes that do, none if the lab's own do."""

    links: tuple[DirectedLink, ...]
    without: tuple[Link, ...]

    def __str__(self) -> str:
        way = " -> ".join([link.sender for link in self.links] + [self.links[0].sender])
        if not self.without:
            return way
        failed = " and ".join(link.name for link in self.without)
        return f"{way}, while {failed} {'is' if len(self.without) == 1 else 'are'} down"


def is_up_down(fabric: Fabric) -> bool:
    """Whether the policy alone keeps each path up-down, whichever links fail: then there is no
    cycle, because no packet that came down goes up again.

    It does where a lowest switch announces only its own prefixes, and the switches above any other
    share an ASN: they reject what it learned from one of them (RFC 4271 section 9.1.2).
    """
    if fabric.observed is not None or not fabric.spec.routing.valley_free:
        return False
    asns: dict[str, set[int | None]] = {}
    for link in fabric.trunks:
        if link.a.role.tier >= link.b.role.tier:
            return False
        if not fabric.node(link.a.node).is_leaf:
            asns.setdefault(link.a.node, set()).add(fabric.node(link.b.node).asn)
    return all(len(above) == 1 for above in asns.values())


def find_cycle(fabric: Fabric) -> Cycle | None:
    """A cycle of buffer dependencies in a lab's routes, or in those after each of
    `searched_failures`. Quick for up-down fabrics of any size.
    """
    if is_up_down(fabric):
        return None
    for failed in searched_failures(fabric):
        left = fabric
        if failed:
            kept = tuple(link for link in fabric.links if link not in failed)
            left = replace(fabric, links=kept)
        links = _cycle(left, expected_routes(left))
        if links:
            return Cycle(links, failed)
    return None


def searched_failures(fabric: Fabric) -> Sequence[tuple[Link, ...]]:
    """The links between switches that fail at once in each of the routes that `find_cycle` follows,
    first none; empty for a fabric of which it follows no routes, since they are too many.

    Each link, and in a small fabric each two, because a packet of a Clos comes down and goes up
    again only where no spine is left that both racks reach. In a large one every so many-th link.
    Only the present routes of an adopted lab are known.
    """
    if fabric.observed is not None:
        return ((),)
    trunks = fabric.trunks
    steps = max(1, len(_prefixes_of_servers(fabric)) * len(trunks))
    most = MOST_STEPS // steps
    if not most:
        return ()
    at_once = 2 if len(trunks) <= MOST_TRUNKS_OF_PAIRS else 1
    found = [each for count in range(at_once + 1) for each in combinations(trunks, count)]
    if len(found) <= most:
        return found
    every = -(-len(trunks) // max(1, most - 1))
    return [(), *((link,) for link in trunks[::every][: most - 1])]


def scope(fabric: Fabric) -> str:
    """In which routes `find_cycle` looks, for a sentence about those of the fabric as it is."""
    if fabric.observed is not None:
        return ""
    searched, trunks = searched_failures(fabric), len(fabric.trunks)
    if len(searched) == 1:
        return ", as long as no link fails"
    if len(searched) <= trunks:
        return f", also after the failure of {len(searched) - 1:,} of its {trunks:,} links alone"
    at_once = "one link" if len(searched) == trunks + 1 else "two links"
    return f", also after the failure of any {at_once}"


def _racks(fabric: Fabric) -> Mapping[str, None]:
    """Switches with servers, in build order, so that a fabric's cycle is always the same one."""
    return dict.fromkeys(link.b.node for link in fabric.links if not link.is_between_switches)


def _prefixes_of_servers(fabric: Fabric) -> list[str]:
    racks = _racks(fabric).keys()
    return [each.prefix for each in fabric.prefixes if not racks.isdisjoint(each.origins)]


def _cycle(
    fabric: Fabric, routes: Mapping[str, Mapping[str, NextHops]]
) -> tuple[DirectedLink, ...]:
    sorter: TopologicalSorter[DirectedLink] = TopologicalSorter()
    for onward, arriving in _dependencies(fabric, routes):
        sorter.add(onward, arriving)
    try:
        sorter.prepare()
    except CycleError as error:
        found: list[DirectedLink] = error.args[1]
        return tuple(found[:-1])
    return ()


def _dependencies(
    fabric: Fabric, routes: Mapping[str, Mapping[str, NextHops]]
) -> Iterator[tuple[DirectedLink, DirectedLink]]:
    """Each link that packets of servers cross, after the one that they came by."""
    sources, prefixes = _racks(fabric), _prefixes_of_servers(fabric)
    if fabric.observed is not None:
        prefixes = list(dict.fromkeys(prefix for table in routes.values() for prefix in table))
    for prefix in prefixes:
        frontier, seen = list(sources), set(sources)
        while frontier:
            node = frontier.pop()
            for link in routes.get(node, {}).get(prefix, ()):
                arriving, at = DirectedLink(link, node), link.far(node).node
                for onward in routes.get(at, {}).get(prefix, ()):
                    yield DirectedLink(onward, at), arriving
                if at not in seen:
                    seen.add(at)
                    frontier.append(at)
