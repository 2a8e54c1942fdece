"""Counts packets where they arrive, by the kernel of the port's node.

It counts packets that match a filter per directed link, independently of the agents.

Interface counters count routing packets too. On an unused link these are only BGP's keepalives,
which would hide that the link is unused.
"""

from __future__ import annotations

import errno
import resource
import socket
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.lab.node import PortGoneError
from rocelab.linux import namespaces
from rocelab.linux.closing import Closing
from rocelab.linux.tc import ETH_P_ALL
from rocelab.planning.fabric import DirectedLink, Fabric, Link
from rocelab.wire.filters import attach_filter, within_vxlan

_SOL_PACKET = 263
_PACKET_STATISTICS, _PACKET_IGNORE_OUTGOING = 6, 23
_STATISTICS = struct.Struct("=II")
_SPARE_DESCRIPTORS = 256

LinkPackets = Mapping[DirectedLink, int]


class Taps(Closing):
    """Counts what passes a filter at the ends of links, from its making to `close`.

    A packet socket per port with almost no buffer: the kernel counts the packets that pass the
    filter even if there is no room for them (net/packet/af_packet.c), and nothing is ever read.
    """

    def __init__(
        self,
        fabric: Fabric,
        netns_of: Mapping[str, int],
        links: Iterable[Link],
        program: bytes,
    ) -> None:
        """Ends at nodes without a namespace in `netns_of` are ignored; `program` comes from
        `rocelab.wire.filters`. Raises MachineError if this process may not open enough sockets,
        PortGoneError if a port is not there any more."""
        self._fabric = fabric
        self._links = {link.name for link in links}
        self._program = within_vxlan(program) if fabric.tenants else program
        self._sockets: dict[DirectedLink, socket.socket] = {}
        _allow_descriptors(2 * len(self._links))
        try:
            in_network = {
                name: netns for name, netns in netns_of.items() if name in fabric.node_by_name
            }
            namespaces.inside_each(in_network, self._listen)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop counting."""
        for tap in self._sockets.values():
            tap.close()
        self._sockets.clear()

    def read(self) -> LinkPackets:
        """Packets since the last call."""
        return {link: _packets(tap) for link, tap in self._sockets.items()}

    def _listen(self, node: str) -> None:
        for link in self._fabric.links_of[node]:
            if link.name in self._links:
                tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
                self._sockets[DirectedLink(link, link.far(node).node)] = tap
                tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
                attach_filter(tap, self._program)
                # An EtherType, not ETH_P_ALL: only incoming packets. A bridge takes those of its
                # ports before a socket of an EtherType sees them.
                ethertype = self._fabric.family.ethertype
                if link.name in self._fabric.tenant_by_link and node == link.b.node:
                    tap.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
                    ethertype = ETH_P_ALL
                try:
                    tap.bind((link.port(node).interface, ethertype))
                except OSError as error:
                    if error.errno != errno.ENODEV:
                        raise
                    raise PortGoneError(link.port(node)) from None


def _packets(tap: socket.socket) -> int:
    answer = tap.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
    packets, _ = _STATISTICS.unpack(answer)
    return int(packets)


def _allow_descriptors(sockets: int) -> None:
    opened = sum(1 for _ in Path("/proc/self/fd").iterdir())
    wanted = opened + sockets + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise MachineError(
            f"counting on {sockets:,} ports needs {wanted:,} open files and the limit is {hard:,}",
            "raise it with `ulimit -Hn`",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
