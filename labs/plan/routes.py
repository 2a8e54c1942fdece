"""The routes BGP must converge to: for each switch and prefix, the links of its ECMP group.

Computed from the fabric's policy, not from its kind: a prefix spreads from its origin one AS hop
at a time; a switch keeps every link over which it first arrives (equal AS-path length, RFC 7938
section 6.1), refuses paths that hold its own ASN, and an RTSW announces nothing but its own prefix.
"""

from __future__ import annotations

from collections.abc import Mapping

from labs.plan.fabric import Fabric, Link, Role

NextHops = tuple[Link, ...]


def spread(fabric: Fabric, origin: str) -> dict[str, NextHops]:
    """The switches that learn `origin`'s prefix, each with its ECMP group in build order."""
    asn_of = {node.name: node.asn for node in fabric.switches}
    reached: dict[str, NextHops] = {origin: ()}
    path_asns: dict[str, frozenset[int | None]] = {origin: frozenset({asn_of[origin]})}
    frontier = [origin]
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
        frontier = [name for name in arrived if fabric.node(name).role is not Role.RTSW]
    del reached[origin]
    return reached


def expected_routes(fabric: Fabric) -> Mapping[str, Mapping[str, NextHops]]:
    """For each switch, the next-hop links of every prefix it must hold, own prefix excluded.

    Groups wider than routing.max_paths are cut by BGP; `expected_width` says to what.
    """
    routes: dict[str, dict[str, NextHops]] = {node.name: {} for node in fabric.switches}
    for prefix in fabric.prefixes:
        for name, links in spread(fabric, prefix.origin).items():
            routes[name][prefix.prefix] = links
    return routes


def expected_width(fabric: Fabric, links: NextHops) -> int:
    """How many next hops the kernel must hold for a group of `links`."""
    return min(len(links), fabric.spec.routing.max_paths)
