"""What a node's kernel says of its ports: up, carrier, dormant, MTU, permanent neighbours.

In: a node of a running lab. Out: a `PortState` per interface, and the interfaces that a server's
default route leaves by. Read afresh at each call: faults are proven undone by it.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from pyroute2 import IPRoute

from rocelab.kernel import namespaces
from rocelab.plan.fabric import Link, Port
from rocelab.runtime.lab import Lab
from rocelab.runtime.node import NamespaceNode
from rocelab.runtime.wiring import IF_LINK_MODE_DORMANT, NUD_PERMANENT

IFF_UP = 0x1
IFF_RUNNING = 0x40
IFF_LOWER_UP = 0x10000
SIOCGIFFLAGS = 0x8913
RTN_UNICAST = 1
RTNH_F_DEAD = 1

_IFREQ = struct.Struct("=16sH22x")
"""`struct ifreq` with flags (netdevice(7))."""


@dataclass(frozen=True, slots=True)
class PortState:
    """A port as its kernel has it. `neighbours` are the MAC addresses it knows for good."""

    index: int
    up: bool
    carrier: bool
    dormant: bool
    mtu: int
    neighbours: frozenset[str]


def read_ports(node: NamespaceNode) -> Mapping[str, PortState]:
    """The node's ports, by interface name. Raises OSError when it is not there."""

    def read() -> dict[str, PortState]:
        with IPRoute() as kernel:
            known: dict[int, set[str]] = {}
            for family in (socket.AF_INET, socket.AF_INET6):
                for entry in kernel.get_neighbours(family=family):
                    if entry["state"] & NUD_PERMANENT:
                        known.setdefault(entry["ifindex"], set()).add(entry.get_attr("NDA_LLADDR"))
            return {
                link.get_attr("IFLA_IFNAME"): PortState(
                    index=link["index"],
                    up=bool(link["flags"] & IFF_UP),
                    carrier=bool(link["flags"] & IFF_LOWER_UP),
                    dormant=link.get_attr("IFLA_LINKMODE") == IF_LINK_MODE_DORMANT
                    or link.get_attr("IFLA_OPERSTATE") == "DORMANT",
                    mtu=link.get_attr("IFLA_MTU"),
                    neighbours=frozenset(known.get(link["index"], set())),
                )
                for link in kernel.get_links()
            }

    return namespaces.inside(node.netns, read)


def read_default_ports(node: NamespaceNode) -> frozenset[int]:
    """Indexes of the interfaces that the node's default route leaves by, none where it has none."""

    def read() -> frozenset[int]:
        with IPRoute() as kernel:
            for route in kernel.get_default_routes(family=socket.AF_INET):
                if route["type"] != RTN_UNICAST:
                    continue
                hops = route.get_attr("RTA_MULTIPATH")
                if hops is None:
                    return frozenset({route.get_attr("RTA_OIF")})
                return frozenset(hop["oif"] for hop in hops if not hop["flags"] & RTNH_F_DEAD)
        return frozenset()

    return namespaces.inside(node.netns, read)


def running_ports(lab: Lab, ports: Sequence[tuple[str, Port]]) -> frozenset[str]:
    """Of these nodes' ports, those whose kernel would send: up, with carrier and not dormant
    (IFF_RUNNING). One call to the kernel for each, as it is asked while something is measured."""
    of_node: dict[str, list[str]] = {}
    for node, port in ports:
        of_node.setdefault(node, []).append(port.interface)

    def running(interfaces: Sequence[str]) -> list[str]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
            return [each for each in interfaces if _flags(kernel, each) & IFF_RUNNING]

    return frozenset(
        f"{node}:{interface} has carrier"
        for node, names in of_node.items()
        for interface in namespaces.inside(lab.node(node).netns, partial(running, names))
    )


def _flags(kernel: socket.socket, interface: str) -> int:
    answer = fcntl.ioctl(kernel, SIOCGIFFLAGS, _IFREQ.pack(interface.encode(), 0))
    return int(_IFREQ.unpack(answer)[1])


def port_faults(link: Link, node: str, state: PortState) -> tuple[str, ...]:
    """What is wrong with a node's port of a link: down, or without its neighbour."""
    port = link.port(node)
    name = f"{node}:{port.interface}"
    if not state.up:
        return (f"{name} is down",)
    if link.far(node).mac not in state.neighbours:
        return (f"{name} has no entry for its neighbour",)
    return ()
