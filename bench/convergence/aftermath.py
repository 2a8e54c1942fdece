"""What routing should be once it has dealt with a failure: the fabric without what failed.

In: a fabric and the links that carry nothing any more. Out: for every switch and prefix the
interfaces that it should then use; and where running tables differ from that. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from bench.convergence.plan import Cell, Place
from labs.forwarding.fib import Fib
from labs.plan.fabric import Fabric, Link, Prefix
from labs.plan.routes import expected_routes


@dataclass(frozen=True, slots=True)
class Aftermath:
    """`interfaces` by (switch, prefix), none where the prefix should be gone. Switches and prefixes
    that do not outlast the failure are not in it."""

    interfaces: Mapping[tuple[str, str], frozenset[str]]


def aftermath(cell: Cell, fabric: Fabric, link: Link) -> Aftermath:
    """Of the cell's fault at `link`, or at its upper end where a whole switch fails."""
    gone = {link.b.node} if cell.site.place is Place.SPINE else set()
    failed = {each.name for node in gone for each in fabric.links_of[node]} | {link.name}
    prefixes = tuple(_left(fabric, prefix, link) for prefix in fabric.prefixes)
    after = replace(
        fabric,
        links=tuple(each for each in fabric.links if each.name not in failed),
        prefixes=tuple(prefix for prefix in prefixes if not set(prefix.origins) <= gone),
    )
    routes = expected_routes(after)
    found = {}
    for node in fabric.switches:
        if node.name in gone:
            continue
        for prefix in after.prefixes:
            if node.name not in prefix.origins:
                links = routes[node.name].get(prefix.prefix, ())
                used = frozenset(each.port(node.name).interface for each in links)
                found[node.name, prefix.prefix] = used
    return Aftermath(found)


def _left(fabric: Fabric, prefix: Prefix, failed: Link) -> Prefix:
    """A prefix as it is announced without `failed`: of a NIC's port only with carrier to it."""
    if not prefix.per_port or fabric.node(failed.a.node).is_switch:
        return prefix
    if failed.a.ip != prefix.prefix.partition("/")[0]:
        return prefix
    return replace(
        prefix, origins=tuple(origin for origin in prefix.origins if origin != failed.b.node)
    )


def deviations(wanted: Aftermath, fibs: Mapping[str, Fib]) -> tuple[str, ...]:
    """Each route that is not yet as it should be, as a person reads it."""
    used: dict[tuple[str, str], frozenset[str]] = {}
    for node, fib in fibs.items():
        for route in fib.routes:
            used[node, route.prefix] = frozenset(
                hop.interface for hop in route.next_hops if hop.carrier
            )
    return tuple(
        f"{node} {prefix}: over {_listed(used.get((node, prefix), frozenset()))} "
        f"instead of {_listed(interfaces)}"
        for (node, prefix), interfaces in wanted.interfaces.items()
        if used.get((node, prefix), frozenset()) != interfaces
    )


def _listed(interfaces: frozenset[str]) -> str:
    return " ".join(sorted(interfaces)) or "nothing"
