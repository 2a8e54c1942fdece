"""A node's ports and its default routes, as its kernel reports them.

Every call reads them again: they prove that faults are undone.
"""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from rocelab.lab.lab import RunningLab
from rocelab.lab.node import NamespaceNode, PortGoneError
from rocelab.linux import fib, links, namespaces, netlink
from rocelab.planning.fabric import Port

IFF_RUNNING = 0x40
SIOCGIFFLAGS = 0x8913

_IFREQ = struct.Struct("=16sH22x")
"""`struct ifreq` with flags (netdevice(7))."""


def read_ports(node: NamespaceNode) -> Mapping[str, links.KernelLink]:
    """The node's ports, by interface name. Raises OSError if the node is gone."""
    return node.read_ports()


def check_ports(lab: RunningLab, ports: Iterable[tuple[str, str]]) -> None:
    """Raises PortGoneError if one of these ports, each a node and an interface, is not there."""
    wanted: dict[str, list[str]] = {}
    for node, interface in ports:
        wanted.setdefault(node, []).append(interface)
    for node, interfaces in wanted.items():
        present = read_ports(lab.node(node))
        for interface in interfaces:
            if interface not in present:
                raise PortGoneError(lab.fabric.port_name(node, interface))


def read_default_ports(node: NamespaceNode, table: int = fib.RT_TABLE_MAIN) -> frozenset[int]:
    """Indexes of the interfaces of the default route of a node's table; empty if it has none."""

    def read() -> frozenset[int]:
        with netlink.open_socket() as channel:
            default = [route for route in fib.read_routes(channel, table) if route.length == 0]
        return frozenset(hop.interface for route in fib.used(default) for hop in route.hops)

    return namespaces.inside(node.netns, read)


def running_ports(lab: RunningLab, ports: Sequence[tuple[str, Port]]) -> frozenset[str]:
    """The ports on which the kernel would send: up, with carrier and not dormant
    (IFF_RUNNING). Makes only one system call per port, because it runs during measurements."""
    of_node: dict[str, list[str]] = {}
    for node, port in ports:
        of_node.setdefault(node, []).append(port.interface)

    def running(interfaces: Sequence[str]) -> list[str]:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as kernel:
            return [
                interface for interface in interfaces if _flags(kernel, interface) & IFF_RUNNING
            ]

    return frozenset(
        f"{lab.fabric.port_name(node, interface)} has carrier"
        for node, names in of_node.items()
        for interface in namespaces.inside(lab.node(node).netns, partial(running, names))
    )


def _flags(kernel: socket.socket, interface: str) -> int:
    """0 for an interface that is gone."""
    try:
        answer = fcntl.ioctl(kernel, SIOCGIFFLAGS, _IFREQ.pack(interface.encode(), 0))
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise
        return 0
    return int(_IFREQ.unpack(answer)[1])
