"""Predicts the path of a flow, hop by hop, from each switch's table and the kernel's hash.

The tables are read from the running kernels or planned. The path has every node, link and ECMP
choice from the source to the destination server; `possible_links` are those of all choices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rocelab.base.errors import ExpectationError, InputError
from rocelab.base.wording import counted, listed
from rocelab.linux.fibtable import FibOf, Route
from rocelab.planning.fabric import DirectedLink, Fabric, Link, Nic, Node
from rocelab.planning.routes import spread
from rocelab.planning.tenancy import check_reached, forwarded_to
from rocelab.routes.multipath import Flow5, multipath_hash, select, udp_flow
from rocelab.routes.steering import ROCE_PORT, SteeringModel
from rocelab.routes.tunnel import outer_flow


class NoPathError(ExpectationError):
    """A flow does not arrive; the error names the node where it ends."""


_NAMED = 4
"""Switches that a hint names."""


def no_route(fabric: Fabric, name: str, destination: str) -> NoPathError:
    """The error of a switch without a route to an address, with what the plan knows of it."""
    return NoPathError(f"{name}: no route to {destination}", _why_none(fabric, name, destination))


def _why_none(fabric: Fabric, name: str, destination: str) -> str:
    asks = f"`rocelab status {fabric.name}`"
    if not fabric.node(name).is_switch:
        return "a server forwards nothing: the switch before it has a wrong route"
    if fabric.spec.routing.is_own:
        return (
            f"the lab's own configuration decides: {asks} compares it with what it had, and "
            f"`rocelab vtysh {fabric.name} {name} -c 'show ip route'` has its routes"
        )
    origins = [prefix.origins for prefix in fabric.prefixes_holding(destination)]
    links = [link for those in origins for link in spread(fabric, those).get(name, ())]
    if links:
        planned = listed([link.far(name).node for link in dict.fromkeys(links)], "and")
        return f"one by {planned} is planned: {asks} shows what is missing"
    if not origins:
        return "no switch announces a prefix with it: is it an address of the lab?"
    asn = fabric.node(name).asn
    alike = [node.name for node in fabric.switches if node.asn == asn and node.name != name]
    if alike:
        more = f" and {len(alike) - _NAMED} more" if len(alike) > _NAMED else ""
        return (
            f"none is planned either: {name} has AS number {asn} like {', '.join(alike[:_NAMED])}"
            f"{more}, and BGP drops a path with its own number (RFC 4271, section 9.1.2); give "
            "them other numbers, or cable them so that a path passes by"
        )
    if fabric.valley_free:
        return (
            "none is planned either: with routing.valley_free paths go up, then down, and none "
            "does; set it to false, or add a link upwards"
        )
    return (
        f"none is planned either: no cable leads from {name} to "
        f"{counted(len(origins), 'prefix', 'prefixes')} with it"
    )


@dataclass(frozen=True, slots=True)
class Hop:
    """One node's hop: it sends the flow over `link`.

    `index` is the chosen one of `width` next hops; `flow_hash` is the 31-bit hash that decided,
    None if there was no choice.
    """

    link: DirectedLink
    width: int
    index: int
    flow_hash: int | None


@dataclass(frozen=True, slots=True)
class Path:
    """The hops of a flow, the source server's first, and the server where it arrives."""

    flow: Flow5
    hops: tuple[Hop, ...]
    destination: str
    outer: Flow5 | None = None
    """What switches see of it between leaves, if these carry it over VXLAN."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names from the source to the destination server."""
        return (*(hop.link.sender for hop in self.hops), self.destination)

    def document(self, destination_qp: int | None) -> dict[str, object]:
        """The path for programs, of a flow to that QP if it matters."""
        return {
            "flow": {
                "source": self.flow.source,
                "destination": self.flow.destination,
                "source_port": self.flow.source_port,
                "destination_port": self.flow.destination_port,
                "protocol": self.flow.protocol,
                "destination_qp": destination_qp,
            },
            **({} if self.outer is None else {"outer": _outer_document(self.outer)}),
            "hops": list(self.nodes),
            "links": [hop.link.name for hop in self.hops],
            "detail": [
                {
                    "node": hop.link.sender,
                    "interface": hop.link.port.name,
                    "link": hop.link.name,
                    "width": hop.width,
                    "index": hop.index,
                    "hash": hop.flow_hash,
                }
                for hop in self.hops
            ],
        }


def _outer_document(flow: Flow5) -> dict[str, object]:
    return {
        "source": flow.source,
        "destination": flow.destination,
        "source_port": flow.source_port,
        "destination_port": flow.destination_port,
    }


def walk(
    fabric: Fabric,
    fib_of: FibOf,
    source: Nic,
    destination: Nic,
    source_port: int,
    destination_port: int = ROCE_PORT,
    *,
    leaves_by: int = 0,
    destination_qp: int | None = None,
    steering: SteeringModel | None = None,
) -> Path:
    """The path of a UDP flow from one server's NIC to another's, out of port `leaves_by` (from 0).

    `fib_of` is called once per switch passed. `steering` is the scheme's model, by default that of
    the spec's scheme; `destination_qp` is the BTH's, which e-ecmp hashes. Raises NoPathError if a
    node has no route, discards, sends into a dead link or to a node already visited; InputError for
    a NIC pair on one server or of two tenants, and for a choice that cannot be predicted: with a
    hash seed of 0, and as `SteeringModel.hash_at` does.
    """
    if source.server == destination.server:
        raise InputError(
            f"source and destination are both on {source.server}",
            hint="name two different servers",
        )
    model = steering or SteeringModel(fabric, fabric.spec.scheme)
    flow = udp_flow(source.ip, destination.ip, source_port, destination_port)
    outer = outer_flow(fabric, flow, source, destination)
    seen = outer or flow

    def hash_at(node: Node) -> int:
        steered = model.hash_at(node, flow, destination_qp)
        if steered is not None:
            return steered >> 1
        hashing = fabric.spec.hashing
        return multipath_hash(seen, node.hash_seed, hashing.policy, hashing.fields)

    link = source.links[leaves_by]
    width = len(source.links)
    hops = [Hop(link.up, width, leaves_by, None)]
    while (node := hops[-1].link.receiver) != destination.server:
        if any(hop.link.sender == node for hop in hops):
            passed = " ".join([*(hop.link.sender for hop in hops), node])
            raise NoPathError(f"{node}: a packet to {destination.ip} comes back ({passed})")
        bridged = _bridged(fabric, node, destination)
        hops.append(bridged or _forward(fabric, fib_of, node, seen, hash_at))
    return Path(flow, tuple(hops), destination.server, outer)


def _bridged(fabric: Fabric, node: str, destination: Nic) -> Hop | None:
    """The hop from the leaf that bridges a NIC to it; None at any other switch."""
    link = destination.links[0]
    if fabric.tenant_of(destination) is None or link.b.node != node:
        return None
    return Hop(link.down, 1, 0, None)


def possible_links(
    fabric: Fabric, fib_of: FibOf, source: Nic, destination: Nic
) -> tuple[Link, ...]:
    """The links that some packet from one server's NIC to another's may take, whatever chooses
    among the next hops of each table; those nearer the source come first."""
    links = dict.fromkeys(source.links)
    check_reached(fabric, source, destination)
    address = forwarded_to(fabric, destination)
    waiting = deque(link.far(source.server).node for link in source.links)
    passed = {source.server, destination.server}
    while waiting:
        node = waiting.popleft()
        if node in passed or not fabric.node(node).is_switch:
            continue
        passed.add(node)
        if (bridged := _bridged(fabric, node, destination)) is not None:
            links[bridged.link.link] = None
            continue
        route = fib_of(node).lookup(address)
        used = {hop.interface for hop in route.next_hops} if route else set()
        for link in fabric.links_of[node]:
            if link.port(node).interface in used:
                links[link] = None
                waiting.append(link.far(node).node)
    return tuple(links)


def _forward(
    fabric: Fabric, fib_of: FibOf, name: str, flow: Flow5, hash_at: Callable[[Node], int]
) -> Hop:
    node = fabric.node(name)
    if not node.is_switch:
        raise NoPathError(f"{name}: a server got a packet to {flow.destination}: it ends here")
    route = fib_of(name).lookup(flow.destination)
    if route is None:
        raise no_route(fabric, name, flow.destination)
    if not route.next_hops:
        raise NoPathError(f"{name}: {route.prefix} discards packets to {flow.destination}")
    flow_hash = None
    index = 0
    if len(route.next_hops) > 1:
        flow_hash = hash_at(node)
        index = select(flow_hash, [hop.weight for hop in route.next_hops])
    return _taken(fabric, name, route, index, flow_hash)


def _taken(fabric: Fabric, name: str, route: Route, index: int, flow_hash: int | None) -> Hop:
    chosen = route.next_hops[index]
    if not chosen.carrier:
        raise NoPathError(
            f"{name}: {route.prefix} still uses {fabric.port_name(name, chosen.interface)}, whose "
            "link is down"
        )
    link = _link_at(fabric, name, chosen.interface)
    return Hop(link, len(route.next_hops), index, flow_hash)


def _link_at(fabric: Fabric, node: str, interface: str) -> DirectedLink:
    for link in fabric.links_of[node]:
        if link.port(node).interface == interface:
            return DirectedLink(link, node)
    raise NoPathError(f"{node}: {interface} leads out of the fabric")
