"""A fabric whose switches run files of the user's own: their AS numbers and addresses are those of
the files, and what they were planned with stays where a file says nothing.

A server's address is the next one in the subnet of its switch's port. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_interface

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.labfile.frr_file import LOOPBACK, FrrFile, read_frr_file
from rocelab.labfile.model import LabSpec
from rocelab.labfile.observed import ObservedSpec
from rocelab.planning.fabric import Fabric, Link, Node, Observed, Port, Prefix, RouteBasis

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


@cache
def _read(text: str) -> FrrFile:
    return read_frr_file(text)


def files_of(spec: LabSpec) -> Mapping[str, FrrFile]:
    """The files of the switches that have one, read."""
    config = spec.routing.config
    return {} if config is None else {name: _read(text) for name, text in config.texts.items()}


def configured(fabric: Fabric) -> Fabric:
    """The fabric with the AS numbers and addresses of its switches' files. Raises InputError if a
    subnet has no address for a server."""
    files = files_of(fabric.spec)
    if not files:
        return fabric
    addresses = {
        name: file.addresses if fabric.family is Family.IPV4 else file.addresses6
        for name, file in files.items()
    }
    taken: dict[Network, set[Address]] = {}
    for of_node in addresses.values():
        for text in of_node.values():
            address = ip_interface(text)
            taken.setdefault(address.network, set()).add(address.ip)
    links = tuple(_link(link, addresses, taken) for link in fabric.links)
    nodes = tuple(
        _node(node, files[node.name], addresses[node.name]) if node.name in files else node
        for node in fabric.nodes
    )
    trunks = (link for link in links if link.is_between_switches)
    numbered = all(link.a.address and link.b.address for link in trunks)
    made = replace(fabric, nodes=nodes, links=links, numbered=numbered)
    return replace(made, prefixes=tuple(_prefixes(made, fabric)))


def _node(node: Node, file: FrrFile, addresses: Mapping[str, str]) -> Node:
    loopback = addresses.get(LOOPBACK)
    return replace(
        node,
        asn=file.asn,
        loopback=node.loopback if loopback is None else loopback.partition("/")[0],
        router_id=file.router_id or node.router_id,
    )


def _link(
    link: Link, addresses: Mapping[str, Mapping[str, str]], taken: dict[Network, set[Address]]
) -> Link:
    a, b = (_port(end, addresses.get(end.node, {})) for end in (link.a, link.b))
    if link.is_between_switches or b == link.b or b.address is None:
        return replace(link, a=a, b=b)
    return replace(link, a=replace(a, address=_next_address(b, taken)), b=b)


def _port(port: Port, addresses: Mapping[str, str]) -> Port:
    address = addresses.get(port.interface)
    return port if address is None else replace(port, address=address)


def _next_address(port: Port, taken: dict[Network, set[Address]]) -> str:
    """The first free address of a port's subnet."""
    network = ip_interface(port.address or "").network
    hosts: Iterable[Address] = network.hosts()  # both of a /31 and of a /127
    free = next((ip for ip in hosts if ip not in taken[network]), None)
    if free is None:
        raise InputError(
            f"{port} has {port.address}, and no address is left there for its server",
            "give the port a subnet with room, such as a /31",
        )
    taken[network].add(free)
    return f"{free}/{network.prefixlen}"


def _prefixes(fabric: Fabric, planned: Fabric) -> Iterator[Prefix]:
    """The loopback of each switch and the subnets of its servers' ports; those of switches without
    a file as planned."""
    files = files_of(fabric.spec)
    for node in fabric.switches:
        if node.name not in files:
            yield from (one for one in planned.prefixes if one.origins[0] == node.name)
            continue
        yield Prefix(f"{node.loopback}/{fabric.family.bits}", (node.name,))
        subnets = dict.fromkeys(
            str(ip_interface(link.b.address).network)
            for link in fabric.downlinks(node.name)
            if not link.is_between_switches and link.b.address is not None
        )
        yield from (Prefix(subnet, (node.name,)) for subnet in subnets)


def observed(fabric: Fabric, spec: ObservedSpec) -> Fabric:
    """The fabric with what was observed of it. Raises ValueError for a port that it has not."""
    link_at = {(end.node, end.interface): link for link in fabric.links for end in (link.a, link.b)}
    try:
        routes = {
            node: {
                prefix: tuple(link_at[node, name] for name in interfaces)
                for prefix, interfaces in of_node.items()
            }
            for node, of_node in spec.routes.items()
        }
    except KeyError as error:
        raise ValueError(f"a route leads by {error}, which is no port of the lab") from None
    return replace(
        fabric,
        observed=Observed(
            routes, frozenset(spec.sessions), spec.daemons, spec.peers, RouteBasis(spec.basis)
        ),
    )
