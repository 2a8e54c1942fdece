"""The routes BGP must converge to: for each switch and prefix, the links of its ECMP group.

Computed from the fabric's policy, not from its kind: a prefix spreads from its origin one AS hop
at a time; a switch keeps every link over which it first arrives (equal AS-path length, RFC 7938
section 6.1), rejects paths with its own ASN; a switch of the lowest tier announces only its own
prefixes, unless paths may have valleys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocelab.planning.fabric import Fabric, Link

NextHops = tuple[Link, ...]


def spread(fabric: Fabric, origins: Sequence[str]) -> dict[str, NextHops]:
    """The switches that learn a prefix of `origins`, each with its ECMP group in build order."""
    asn_of = {node.name: node.asn for node in fabric.switches}
    reached: dict[str, NextHops] = dict.fromkeys(origins, ())
    path_asns: dict[str, frozenset[int | None]] = {
        origin: frozenset({asn_of[origin]}) for origin in origins
    }
    frontier = list(origins)
    while frontier:
        arrived: dict[str, list[Link]] = {}
        for name in frontier:
            path = path_asns[name]
            for link in fabric.links_of[name]:
                neighbour = link.b.node if link.a.node == name else link.a.node
                asn = asn_of.get(neighbour)
                if asn is None or neighbour in reached or asn in path:
                    continue
                arrived.setdefault(neighbour, []).append(link)
                path_asns.setdefault(neighbour, path | {asn})
        for name, links in arrived.items():
            reached[name] = tuple(links)
        if fabric.spec.routing.valley_free:
            frontier = [name for name in arrived if not fabric.node(name).is_leaf]
        else:
            frontier = list(arrived)
    for origin in origins:
        del reached[origin]
    return reached


def expected_routes(fabric: Fabric) -> Mapping[str, Mapping[str, NextHops]]:
    """The next-hop links of every prefix that a switch must hold, except its own, by switch.

    Groups wider than routing.max_paths are cut by BGP; `expected_width` gives the width. A lab that
    was adopted must hold what it had then.
    """
    if fabric.observed is not None:
        return {node.name: fabric.observed.routes.get(node.name, {}) for node in fabric.switches}
    routes: dict[str, dict[str, NextHops]] = {node.name: {} for node in fabric.switches}
    spread_from: dict[tuple[str, ...], dict[str, NextHops]] = {}
    for prefix in fabric.prefixes:
        if prefix.origins not in spread_from:
            spread_from[prefix.origins] = spread(fabric, prefix.origins)
        for name, links in spread_from[prefix.origins].items():
            routes[name][prefix.prefix] = links
    return routes


def expected_width(fabric: Fabric, links: NextHops) -> int:
    """The number of next hops that the kernel must hold for a group of `links`."""
    return min(len(links), fabric.spec.routing.max_paths)
