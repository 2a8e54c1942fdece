"""The fabric of a lab with several networks, of the fabric of each.

Servers of one name are one node. Links, prefixes and switches are those of their network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rocelab.base.errors import InputError
from rocelab.labfile.networks import NetworksLabSpec
from rocelab.planning.fabric import MOST_NICS, Fabric, Node


def merged(spec: NetworksLabSpec, parts: Sequence[Fabric]) -> Fabric:
    """The fabric of the lab. Raises InputError if two networks have an address, or a server has in
    two a port of one name, or too many NICs in one."""
    nodes: dict[str, Node] = {}
    for part in parts:
        for node in part.nodes:
            nodes.setdefault(node.name, node)
    fabric = Fabric(
        spec,
        tuple(nodes.values()),
        tuple(link for part in parts for link in part.links),
        tuple(prefix for part in parts for prefix in part.prefixes),
        all(part.numbered for part in parts),
        parts=tuple(parts),
    )
    _check_addresses(parts)
    _check_servers(fabric)
    return fabric


def _check_addresses(parts: Sequence[Fabric]) -> None:
    owner: dict[str, str] = {}
    for part in parts:
        addresses = [node.loopback for node in part.switches]
        addresses += [node.other_loopback for node in part.switches]
        for link in part.links:
            for end in (link.a, link.b):
                addresses += [end.address, end.other_address]
        for address in addresses:
            if address is None:
                continue
            name = part.network_name or ""
            other = owner.setdefault(address.partition("/")[0], name)
            if other != name:
                raise InputError(
                    f"{address.partition('/')[0]} is an address of networks {other} and {name}",
                    "give their links and loopbacks addresses apart",
                )


def _check_servers(fabric: Fabric) -> None:
    for server in fabric.servers:
        ports = Counter(link.a.interface for link in fabric.links_of[server.name])
        twice = next((port for port, count in ports.items() if count > 1), None)
        if twice is not None:
            raise InputError(
                f"{server.name} has {ports[twice]} ports {twice}, in two networks",
                "a port is in one network: draw one in each, such as eth0 and eth0.20, each at its "
                "share of the rate",
            )
        for part in fabric.parts:
            if server.name not in part.node_by_name:
                continue
            nics = len(part.nics(server.name))
            if nics > MOST_NICS:
                raise InputError(
                    f"{server.name} has {nics} NICs in network {part.network_name}, and a lab "
                    f"with several networks has room for {MOST_NICS} in each",
                    "give the server fewer",
                )
