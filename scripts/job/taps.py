"""Counts RoCEv2 packets where they come in, by the kernel of the port's node.

In: a fabric, its namespaces, and the NICs of a job. Out: packets per link and sender, and of what a
NIC sends and takes the data packets alone. These are a device's counts, independent of what agents
say, and leave out routing's packets, which interface counters include.
"""

from __future__ import annotations

import resource
import socket
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Self

from labs.errors import MachineError
from labs.plan.fabric import Fabric, Link
from labs.runtime import namespaces
from traffic.filters import attach_filter, roce_filter
from traffic.wire import BTH_OFFSET, IP_OFFSET, ROCE_PORT, Opcode

_ETH_P_IP = 0x0800
_SOL_PACKET = 263
_PACKET_STATISTICS = 6
_STATISTICS = struct.Struct("=II")
_LD_HALF, _LD_BYTE, _JUMP_EQUAL, _JUMP_GREATER, _RETURN = 0x28, 0x30, 0x15, 0x25, 0x06
_SPARE_DESCRIPTORS = 256

LinkPackets = Mapping[tuple[str, str], int]
"""Packets by (link name, sending node)."""


def data_filter() -> bytes:
    """Only data packets of reliable connections pass (SENDs and WRITEs)."""
    program = (
        (_LD_BYTE, 0, 0, IP_OFFSET + 9),
        (_JUMP_EQUAL, 0, 5, socket.IPPROTO_UDP),
        (_LD_HALF, 0, 0, BTH_OFFSET - 6),
        (_JUMP_EQUAL, 0, 3, ROCE_PORT),
        (_LD_BYTE, 0, 0, BTH_OFFSET),
        (_JUMP_GREATER, 1, 0, Opcode.RC_WRITE_ONLY_WITH_IMM),
        (_RETURN, 0, 0, 0x40000),
        (_RETURN, 0, 0, 0),
    )
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


class Taps:
    """Counts from its making to `close`: `roce` on every link, `data` on the links of NICs.

    A packet socket per port with a filter and next to no buffer: the kernel counts what passes the
    filter, room for it or not (net/packet/af_packet.c), and nothing is ever read.
    """

    def __init__(
        self, fabric: Fabric, netns_of: Mapping[str, int], nic_links: Iterable[Link]
    ) -> None:
        """Raises MachineError where this process may not open as many sockets."""
        self._fabric = fabric
        self._nic_links = {link.name for link in nic_links}
        self._roce: dict[tuple[str, str], socket.socket] = {}
        self._data: dict[tuple[str, str], socket.socket] = {}
        _allow_descriptors(2 * len(fabric.links) + 2 * len(self._nic_links))
        try:
            namespaces.inside_each(netns_of, self._listen)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop counting."""
        for tap in (*self._roce.values(), *self._data.values()):
            tap.close()
        self._roce.clear()
        self._data.clear()

    def roce(self) -> LinkPackets:
        """RoCEv2 packets since the last call, by (link name, sending node)."""
        return {key: _packets(tap) for key, tap in self._roce.items()}

    def data(self) -> LinkPackets:
        """Data packets since the last call, on the NICs' links."""
        return {key: _packets(tap) for key, tap in self._data.items()}

    def _listen(self, node: str) -> None:
        for link in self._fabric.links_of[node]:
            key = link.name, link.far(node).node
            interface = link.port(node).interface
            self._roce[key] = _tap(interface, roce_filter())
            if link.name in self._nic_links:
                self._data[key] = _tap(interface, data_filter())


def _tap(interface: str, program: bytes) -> socket.socket:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    try:
        tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
        attach_filter(tap, program)
        # ETH_P_IP and not ETH_P_ALL: what comes in, and not what goes out.
        tap.bind((interface, _ETH_P_IP))
    except BaseException:
        tap.close()
        raise
    return tap


def _packets(tap: socket.socket) -> int:
    answer = tap.getsockopt(_SOL_PACKET, _PACKET_STATISTICS, _STATISTICS.size)
    packets, _ = _STATISTICS.unpack(answer)
    return int(packets)


def _allow_descriptors(sockets: int) -> None:
    wanted = sockets + _SPARE_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted or soft == resource.RLIM_INFINITY:
        return
    if hard != resource.RLIM_INFINITY and hard < wanted:
        raise MachineError(
            f"counting on {sockets:,} ports needs {wanted:,} open files and the limit is {hard:,}",
            "raise it with `ulimit -Hn`",
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
