"""The routes BGP must converge to: for each switch and prefix, the links of its ECMP group.

Computed from the fabric's policy, not from its kind, and of shortest paths where the user's
configuration decides: a prefix spreads from its origin one AS hop
at a time; a switch keeps every link over which it first arrives (equal AS-path length, RFC 7938
section 6.1), and announces the path of the neighbour with the lowest BGP identifier (RFC 4271,
section 9.1.2.2 f); it rejects paths with its own ASN. A switch of the lowest tier announces only
its own prefixes, unless paths may have valleys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocelab.base.wording import counted
from rocelab.fabrics.addressing import number_of
from rocelab.planning.fabric import Fabric, Link, Node, RouteBasis

NextHops = tuple[Link, ...]


def spread(fabric: Fabric, origins: Sequence[str]) -> dict[str, NextHops]:
    """The switches that learn a prefix of `origins`, each with its ECMP group in build order."""
    fabric = fabric.network_of(origins[0])
    if fabric.spec.routing.is_own:
        return _shortest(fabric, origins)
    asn_of = {node.name: node.asn for node in fabric.switches}
    rank_of = {node.name: _rank(node) for node in fabric.switches}
    reached: dict[str, NextHops] = dict.fromkeys(origins, ())
    path_asns: dict[str, frozenset[int | None]] = {
        origin: frozenset({asn_of[origin]}) for origin in origins
    }
    frontier = list(origins)
    while frontier:
        arrived: dict[str, list[Link]] = {}
        best: dict[str, str] = {}
        for name in frontier:
            path = path_asns[name]
            for link in fabric.links_of[name]:
                neighbour = link.b.node if link.a.node == name else link.a.node
                asn = asn_of.get(neighbour)
                if asn is None or neighbour in reached or asn in path:
                    continue
                arrived.setdefault(neighbour, []).append(link)
                if neighbour not in best or rank_of[name] < rank_of[best[neighbour]]:
                    best[neighbour] = name
        for name, links in arrived.items():
            reached[name] = tuple(links)
            path_asns[name] = path_asns[best[name]] | {asn_of[name]}
        if fabric.valley_free:
            frontier = [name for name in arrived if not fabric.node(name).is_leaf]
        else:
            frontier = list(arrived)
    for origin in origins:
        del reached[origin]
    return reached


def _rank(node: Node) -> int:
    """The order of a switch's paths among those of equal length."""
    return number_of(node.router_id) if node.router_id is not None else 0


def _shortest(fabric: Fabric, origins: Sequence[str]) -> dict[str, NextHops]:
    """The switches that reach one of `origins`, each with the links of all its shortest paths."""
    reached: dict[str, list[Link]] = {origin: [] for origin in origins}
    frontier = list(origins)
    while frontier:
        arrived: dict[str, list[Link]] = {}
        for name in frontier:
            for link in fabric.links_of[name]:
                neighbour = link.far(name).node
                if link.is_between_switches and neighbour not in reached:
                    arrived.setdefault(neighbour, []).append(link)
        reached |= arrived
        frontier = list(arrived)
    order = {link: number for number, link in enumerate(fabric.links)}
    return {
        name: tuple(sorted(links, key=order.__getitem__))
        for name, links in reached.items()
        if name not in origins
    }


def expected_routes(fabric: Fabric) -> Mapping[str, Mapping[str, NextHops]]:
    """The next-hop links of every prefix that a switch must hold, except its own, by switch.

    Groups wider than routing.max_paths are cut by BGP; `expected_width` gives the width. A lab
    whose routing is not the kit's must hold what it had when it was whole.
    """
    if fabric.observed is not None:
        return {node.name: fabric.observed.routes.get(node.name, {}) for node in fabric.switches}
    if fabric.parts:
        return {
            name: links for part in fabric.parts for name, links in expected_routes(part).items()
        }
    routes: dict[str, dict[str, NextHops]] = {node.name: {} for node in fabric.switches}
    spread_from: dict[tuple[str, ...], dict[str, NextHops]] = {}
    for prefix in fabric.prefixes:
        if prefix.origins not in spread_from:
            spread_from[prefix.origins] = spread(fabric, prefix.origins)
        for name, links in spread_from[prefix.origins].items():
            routes[name][prefix.prefix] = links
    return routes


def unreachable(fabric: Fabric) -> tuple[str, ...]:
    """What is said of a fabric in which a switch never learns where the servers of another are,
    because each path to them has an AS number twice, goes up again, or there is none."""
    if fabric.parts:
        return tuple(text for part in fabric.parts for text in unreachable(part))
    if fabric.is_regular or fabric.basis is not RouteBasis.PLANNED:
        return ()
    homes = dict.fromkeys(link.b.node for link in fabric.links if not link.is_between_switches)
    pairs = 0
    first = ("", "")
    for home in homes:
        reached = spread(fabric, (home,))
        lost = [name for name in homes if name != home and name not in reached]
        first = (lost[0], home) if lost and not pairs else first
        pairs += len(lost)
    if not pairs:
        return ()
    more = f", and {counted(pairs - 1, 'more pair')} of switches" if pairs > 1 else ""
    return (
        f"{first[0]} has no route to the servers of {first[1]}{more}: there is no path, or each "
        "has an AS number twice; give the switches on it numbers of their own",
    )


def expected_width(fabric: Fabric, links: NextHops) -> int:
    """The number of next hops that the kernel must hold for a group of `links`."""
    if fabric.observed or not links:
        return len(links)
    return min(len(links), fabric.network_of(links[0].b.node).spec.routing.max_paths)
