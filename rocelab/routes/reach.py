"""Which servers reach which, by walking the tables of switches: every next hop of every switch on
the way has to lead on.

`rocelab.traffic.reachability` asks the same with packets.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocelab.linux.fibtable import FibOf
from rocelab.planning.fabric import Fabric, Link, Nic
from rocelab.planning.tenancy import forwarded_to, is_reached, leaf_of


def unreached(fabric: Fabric, fib_of: FibOf) -> Iterator[tuple[str, str]]:
    """The NICs from whose switch some packet to another server's NIC is lost, with that NIC, as
    addresses."""
    nics = [nic for server in fabric.servers for nic in fabric.nics(server.name)]
    at = {(end.node, end.interface): link for link in fabric.links for end in (link.a, link.b)}
    for destination in nics:
        arrives: dict[str, bool] = {}
        for source in nics:
            if source.server == destination.server:
                continue
            if not is_reached(fabric, source, destination):
                continue
            homes = (link.far(source.server).node for link in source.links)
            if not all(_arrives(fabric, home, destination, fib_of, at, arrives) for home in homes):
                yield source.ip, destination.ip


def least_next_hops(fabric: Fabric, fib_of: FibOf, switch: str) -> int | None:
    """The least next hops of a switch's routes to NICs of other switches; None if there are no
    others."""
    widths = []
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            if any(link.far(server.name).node == switch for link in nic.links):
                continue
            route = fib_of(switch).lookup(forwarded_to(fabric, nic))
            widths.append(0 if route is None else len(route.next_hops))
    return min(widths, default=None)


def _arrives(
    fabric: Fabric,
    switch: str,
    destination: Nic,
    fib_of: FibOf,
    at: dict[tuple[str, str], Link],
    known: dict[str, bool],
) -> bool:
    """Whether each packet that is at a switch arrives. `known` has the switches asked before; one
    that is being asked is on a loop."""
    if switch in known:
        return known[switch]
    if fabric.tenant_of(destination) is not None and leaf_of(destination) == switch:
        known[switch] = True
        return True
    known[switch] = False
    route = fib_of(switch).lookup(forwarded_to(fabric, destination))
    known[switch] = bool(route and route.next_hops) and all(
        hop.carrier
        and (link := at.get((switch, hop.interface))) is not None
        and (
            (far := link.far(switch).node) == destination.server
            or (link.is_between_switches and _arrives(fabric, far, destination, fib_of, at, known))
        )
        for hop in (route.next_hops if route else ())
    )
    return known[switch]
