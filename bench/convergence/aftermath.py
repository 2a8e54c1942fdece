"""The routing to expect after a failure: that of the fabric without the failed parts.

From a fabric and its failed links it computes, for every switch and prefix, the interfaces to use,
and the differences of running tables from that. Pure.

If no shortest path is left there may be a longer one: an aggregation switch of a dual-plane fabric
may reach a server's other plane through the core, if the core's best path, which is the oldest of
several equal ones (FRR bgpd/bgp_route.c, bgp_path_info_cmp), is not in its own plane. That depends
on earlier failures, so any path is accepted there that avoids the failed parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.convergence.plan import Cell
from rocelab import Fabric
from rocelab.linux.fibtable import Fib
from rocelab.planning.fabric import Link, Prefix
from rocelab.planning.routes import expected_routes
from rocelab.sim.events.reaction import ReactionPlace


@dataclass(frozen=True, slots=True)
class Aftermath:
    """`interfaces` by (switch, prefix), empty if no shortest path is left. Switches and prefixes
    that the failure removes are omitted. `failed` are the failed ports."""

    interfaces: Mapping[tuple[str, str], frozenset[str]]
    failed: frozenset[tuple[str, str]]


def aftermath(cell: Cell, fabric: Fabric, link: Link) -> Aftermath:
    """The aftermath of the cell's fault at `link`, or at its upper end if a whole switch fails."""
    gone = {link.b.node} if cell.site.place is ReactionPlace.SPINE else set()
    failed = {link.name for node in gone for link in fabric.links_of[node]} | {link.name}
    prefixes = tuple(_left(fabric, prefix, link) for prefix in fabric.prefixes)
    after = replace(
        fabric,
        links=tuple(link for link in fabric.links if link.name not in failed),
        prefixes=tuple(prefix for prefix in prefixes if not set(prefix.origins) <= gone),
    )
    routes = expected_routes(after)
    interfaces = {}
    for node in fabric.switches:
        if node.name in gone:
            continue
        for prefix in after.prefixes:
            if node.name not in prefix.origins:
                links = routes[node.name].get(prefix.prefix, ())
                used = frozenset(link.port(node.name).interface for link in links)
                interfaces[node.name, prefix.prefix] = used
    ports = {
        (port.node, port.interface)
        for link in fabric.links
        if link.name in failed
        for port in (link.a, link.b)
    }
    return Aftermath(interfaces, frozenset(ports))


def _left(fabric: Fabric, prefix: Prefix, failed: Link) -> Prefix:
    """A prefix as announced without `failed`: a switch announces a NIC's only with carrier to
    it."""
    if not prefix.per_port or fabric.node(failed.a.node).is_switch:
        return prefix
    if failed.a.ip != prefix.prefix.partition("/")[0]:
        return prefix
    return replace(
        prefix, origins=tuple(origin for origin in prefix.origins if origin != failed.b.node)
    )


def deviations(wanted: Aftermath, fibs: Mapping[str, Fib]) -> tuple[str, ...]:
    """Each route that is not yet as expected, as text."""
    used: dict[tuple[str, str], frozenset[str]] = {}
    for node, fib in fibs.items():
        for route in fib.routes:
            used[node, route.prefix] = frozenset(
                hop.interface for hop in route.next_hops if hop.carrier
            )
    differences = []
    for (node, prefix), interfaces in wanted.interfaces.items():
        now = used.get((node, prefix), frozenset())
        over_failed = any((node, interface) in wanted.failed for interface in now)
        if over_failed if not interfaces else now != interfaces:
            differences.append(
                f"{node} {prefix}: over {_listed(now)} instead of {_listed(interfaces)}"
            )
    return tuple(differences)


def _listed(interfaces: frozenset[str]) -> str:
    return " ".join(sorted(interfaces)) or "nothing"
