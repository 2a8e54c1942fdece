"""Cyclic buffer dependencies: whether pauses of lossless classes could wait for each other forever.

A packet that a switch holds for an outgoing link holds memory of the port that it came in by, so a
paused link can pause the links that feed it. Where such dependencies form a cycle, a deadlock is
possible; that there is a cycle is necessary for one, not sufficient (Hu et al., "Tagger", CoNEXT
2017). A packet keeps its class on its way, so all lossless classes have the same dependencies.

A search follows the routes to all destinations at once. A destination is a set of switches that
announce prefixes of servers, because prefixes of the same switches have the same routes; a set of
destinations is an integer with a bit for each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.planning.fabric import DirectedLink, Fabric, Link, RouteBasis
from rocelab.planning.routes import expected_routes
from rocelab.planning.symmetry import alike

MOST_STEPS = 6_000_000_000
"""What a search may take: links between switches times destinations, of all routes that it follows.
About a minute."""

LEAST_DESTINATIONS = 2_000
"""Routes to fewer of them take no less time."""


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


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found."""

    cycle: Cycle | None
    states: int
    """Of how many states of the fabric's links it gives the answer, first that in which none
    failed; 0 if the routes are too many to follow. If there is a cycle it ended there."""
    alone: int
    """The links that failed alone."""
    pairs: bool
    """Whether any two of all links did."""


@dataclass(frozen=True, slots=True)
class _Failures:
    """The states of the links to search."""

    followed: tuple[tuple[Link, ...], ...]
    """The links that fail at once in each state whose routes are followed, first none."""
    alone: int
    """The links whose failure alone is like one of these."""
    pairs: bool
    """Whether the failure of each two is."""


def is_up_down(fabric: Fabric) -> bool:
    """Whether the policy alone keeps each path up-down, whichever links fail: then there is no
    cycle, because no packet that came down goes up again.

    It does where a lowest switch announces only its own prefixes, and the switches above any other
    share an ASN: they reject what it learned from one of them (RFC 4271 section 9.1.2).
    """
    if fabric.basis is not RouteBasis.PLANNED or not fabric.valley_free:
        return False
    asns: dict[str, set[int | None]] = {}
    for link in fabric.trunks:
        if link.a.role.tier >= link.b.role.tier:
            return False
        if not fabric.node(link.a.node).is_leaf:
            asns.setdefault(link.a.node, set()).add(fabric.node(link.b.node).asn)
    return all(len(above) == 1 for above in asns.values())


def search(fabric: Fabric, progress: ProgressSink = no_progress) -> Search:
    """Look for a cycle of buffer dependencies in a lab's routes, as they are and after failures.

    Links fail alone and in pairs, because a packet of a Clos comes down and goes up again only
    where no spine is left that both racks reach. Of links that are `alike` only the first fails:
    what is found then is found after the failure of each, with other names. The same holds for the
    second link of a pair in the fabric that lacks the first. If this takes too long, only links
    alone fail, and fewer of them. Only the present routes of an adopted lab are known.
    """
    progress(Progress("routes", 0, 1))
    failures, trunks = _failures(fabric), len(fabric.trunks)
    states = bool(failures.followed) + failures.alone + failures.pairs * trunks * (trunks - 1) // 2
    for done, failed in enumerate(failures.followed):
        progress(Progress("routes", done, len(failures.followed)))
        left = _without(fabric, failed)
        links = _cycle(left, _crossed(left))
        if links:
            return Search(Cycle(links, failed), states, failures.alone, failures.pairs)
    return Search(None, states, failures.alone, failures.pairs)


def _failures(fabric: Fabric) -> _Failures:
    if not _has_shortest_paths(fabric):
        return _Failures(((),), alone=0, pairs=False)
    racks, destinations = _racks(fabric), _destinations(fabric)
    steps = len(fabric.trunks) * max(len(destinations), LEAST_DESTINATIONS)
    most = MOST_STEPS // max(1, steps)
    if not most:
        return _Failures((), alone=0, pairs=False)
    sets = alike(fabric, racks, destinations)
    chosen = sets[: most - 1]
    alone = ((), *((first,) for first, *_ in chosen))
    if len(chosen) == len(sets) and len(sets) ** 2 <= most:
        both = tuple(
            (first, second)
            for first, *_ in sets
            for second, *_ in alike(_without(fabric, (first,)), racks, destinations)
        )
        if len(alone) + len(both) <= most:
            return _Failures(alone + both, len(fabric.trunks), pairs=True)
    return _Failures(alone, sum(map(len, chosen)), pairs=False)


def _without(fabric: Fabric, failed: tuple[Link, ...]) -> Fabric:
    if not failed:
        return fabric
    return replace(fabric, links=tuple(link for link in fabric.links if link not in failed))


def _has_shortest_paths(fabric: Fabric) -> bool:
    """Whether each switch passes on all routes and has an ASN of its own: then the routes of a
    prefix are all shortest paths to the switches that announce it, and nothing else."""
    asns = {node.asn for node in fabric.switches}
    if fabric.observed is not None or fabric.valley_free:
        return False
    return None not in asns and len(asns) == len(fabric.switches)


def _racks(fabric: Fabric) -> dict[str, None]:
    """Switches with servers, in build order, so that a fabric's cycle is always the same one."""
    return dict.fromkeys(link.b.node for link in fabric.links if not link.is_between_switches)


def _destinations(fabric: Fabric) -> tuple[tuple[str, ...], ...]:
    racks = _racks(fabric).keys()
    origins = dict.fromkeys(prefix.origins for prefix in fabric.prefixes)
    return tuple(origin for origin in origins if not racks.isdisjoint(origin))


def _crossed(fabric: Fabric) -> Mapping[int, int]:
    """The destinations of the packets of servers that cross a link: a bit for each, by the place of
    the link's direction in `fabric.directed_links`. Of parallel links on shortest paths only the
    first is there, since all carry the same."""
    if _has_shortest_paths(fabric):
        return _crossed_on_shortest_paths(fabric)
    routes = expected_routes(fabric)
    place = {link: 2 * number for number, link in enumerate(fabric.links)}
    if fabric.observed is None:
        first = {prefix.origins: prefix.prefix for prefix in fabric.prefixes}
        prefixes = [first[origins] for origins in _destinations(fabric)]
    else:
        prefixes = list(dict.fromkeys(prefix for table in routes.values() for prefix in table))
    crossed: dict[int, int] = defaultdict(int)
    for bit, prefix in enumerate(prefixes):
        reached = _racks(fabric)
        frontier = list(reached)
        for node in frontier:
            for link in routes.get(node, {}).get(prefix, ()):
                crossed[place[link] + (link.b.node == node)] |= 1 << bit
                at = link.far(node).node
                if at not in reached:
                    reached[at] = None
                    frontier.append(at)
    return crossed


def _crossed_on_shortest_paths(fabric: Fabric) -> Mapping[int, int]:
    neighbours: dict[str, dict[str, int]] = {node.name: {} for node in fabric.switches}
    for number, link in enumerate(fabric.links):
        if link.is_between_switches:
            neighbours[link.a.node].setdefault(link.b.node, 2 * number)
            neighbours[link.b.node].setdefault(link.a.node, 2 * number + 1)

    # rings[n]: the destinations that are n hops from each switch.
    rings: list[dict[str, int]] = []
    reached = dict.fromkeys(neighbours, 0)
    arrived = defaultdict[str, int](int)
    for bit, origins in enumerate(_destinations(fabric)):
        for origin in origins:
            arrived[origin] |= 1 << bit
    while ring := {node: new for node, bits in arrived.items() if (new := bits & ~reached[node])}:
        rings.append(ring)
        arrived = defaultdict(int)
        for node, bits in ring.items():
            reached[node] |= bits
            for neighbour in neighbours[node]:
                arrived[neighbour] |= bits

    # Packets begin at racks and come a hop nearer with each link.
    racks = _racks(fabric)
    held = {node: reached[node] if node in racks else 0 for node in neighbours}
    crossed: dict[int, int] = defaultdict(int)
    for nearer, ring in reversed(list(pairwise(rings))):
        for node, bits in ring.items():
            sent = held[node] & bits
            for neighbour, number in neighbours[node].items():
                if onward := sent & nearer.get(neighbour, 0):
                    crossed[number] |= onward
                    held[neighbour] |= onward
    return crossed


def _cycle(fabric: Fabric, crossed: Mapping[int, int]) -> tuple[DirectedLink, ...]:
    """Links of which each feeds the next: packets to some destination cross both."""
    receiver: dict[int, str] = {}
    onward: dict[str, list[int]] = {node.name: [] for node in fabric.switches}
    for number in crossed:
        link = fabric.links[number // 2]
        ends = (link.a.node, link.b.node)
        onward[ends[number % 2]].append(number)
        receiver[number] = ends[1 - number % 2]
    finished: set[int] = set()

    def unfinished_after(number: int) -> Iterator[int]:
        node = receiver[number]
        onward[node] = [link for link in onward[node] if link not in finished]
        return iter(onward[node])

    for start in crossed:
        path = {} if start in finished else {start: unfinished_after(start)}
        while path:
            last = next(reversed(path))
            for number in path[last]:
                if number in finished or not crossed[last] & crossed[number]:
                    continue
                if number in path:
                    around = list(path)
                    return tuple(
                        fabric.directed_links[link] for link in around[around.index(number) :]
                    )
                path[number] = unfinished_after(number)
                break
            else:
                del path[last]
                finished.add(last)
    return ()
