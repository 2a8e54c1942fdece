"""What a node's kernel counts of its ports, read over one netlink socket that stays open.

In: a namespace and its ports' interface indexes. Out: carrier, packets, bytes and drops of each
port, in two exchanges per node whatever its ports. An open socket keeps its namespace alive, so a
reader has to be closed before its lab can go.

Source: include/uapi/linux/if_link.h, net/core/rtnetlink.c, net/sched/sch_api.c (tc_get_qdisc).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rocelab.kernel import netlink, tc

RTM_GETLINK = 18
RTM_NEWLINK = 16
REQUEST_DUMP = 0x301
REQUEST_ECHO = 0x009
"""What is asked for comes as if it were news, which only those hear who ask for an echo."""

NLMSG_ERROR = 2
NLMSG_DONE = 3
IFLA_STATS64 = 23
IFLA_CARRIER_DOWN_COUNT = 48
IFF_LOWER_UP = 1 << 16
ANSWER_TIMEOUT_S = 5.0

_IFINFO = struct.Struct("=BxHiII")
_ATTRIBUTE = struct.Struct("=HH")
_STATS = struct.Struct("=8Q")
_U32 = struct.Struct("=I")
_TCA_STATS_QUEUE = 3
_QUEUE_DROPS_AT = 8


@dataclass(frozen=True, slots=True)
class PortReading:
    """A port since it was made. `lost` are packets that left it and that its peer's kernel did not
    take (no room in the backlog, larger than its MTU); `tc_drops` are those that a program of its
    traffic control dropped, on the way in or out."""

    carrier: bool
    carrier_losses: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    lost: int
    tc_drops: int


class PortReader:
    """Reads a node's ports as often as wanted."""

    def __init__(self, indexes: Mapping[int, str]) -> None:
        """`indexes` gives the names of the ports to read. The calling thread is in the node's
        namespace. Raises OSError."""
        self._names = dict(indexes)
        self._channel = netlink.open_socket(receive_buffer_bytes=4 << 20)
        self._channel.settimeout(ANSWER_TIMEOUT_S)
        self._buffer = bytearray(1 << 17)
        self._links = netlink.HEADER.pack(
            netlink.HEADER.size + _IFINFO.size, RTM_GETLINK, REQUEST_DUMP, 0, 0
        ) + bytes(_IFINFO.size)
        self._qdiscs = b"".join(clsact_request(index) for index in self._names)

    def close(self) -> None:
        """Let the namespace go."""
        self._channel.close()

    def read(self) -> dict[str, PortReading]:
        """Every port now, by interface name. Raises OSError, of which TimeoutError."""
        self._channel.send(self._links)
        links = dict(map(parse_link, self._answers(RTM_NEWLINK, None)))
        self._channel.send(self._qdiscs)
        drops = dict(map(parse_drops, self._answers(tc.RTM_NEWQDISC, len(self._names))))
        return {
            name: PortReading(*links[index], tc_drops=drops.get(index, 0))
            for index, name in self._names.items()
            if index in links
        }

    def _answers(self, kind: int, expected: int | None) -> Iterator[bytes]:
        """The bodies of answers of that kind: up to the end of a dump, or to `expected` answers,
        refusals included."""
        while expected is None or expected > 0:
            size = self._channel.recv_into(self._buffer)
            offset = 0
            while offset + netlink.HEADER.size <= size:
                length, found, *_ = netlink.HEADER.unpack_from(self._buffer, offset)
                if found == NLMSG_DONE:
                    return
                if found == kind:
                    yield bytes(self._buffer[offset + netlink.HEADER.size : offset + length])
                if expected is not None and found in (kind, NLMSG_ERROR):
                    expected -= 1
                offset += (length + 3) & ~3


def clsact_request(index: int) -> bytes:
    """Asks for the qdisc in front of a port's queues and behind its wire. A port may have none."""
    body = tc.TCMSG.pack(socket.AF_UNSPEC, index, 0, tc.TC_H_CLSACT, 0)
    return (
        netlink.HEADER.pack(netlink.HEADER.size + len(body), tc.RTM_GETQDISC, REQUEST_ECHO, 0, 0)
        + body
    )


def parse_link(body: bytes) -> tuple[int, tuple[bool, int, int, int, int, int, int]]:
    """A link's index, and the fields of its `PortReading` but the last."""
    _, _, index, flags, _ = _IFINFO.unpack_from(body)
    losses, stats, offset = 0, (0,) * 8, _IFINFO.size
    while offset + 4 <= len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        if kind == IFLA_STATS64:
            stats = _STATS.unpack_from(body, offset + 4)
        elif kind == IFLA_CARRIER_DOWN_COUNT:
            losses = _U32.unpack_from(body, offset + 4)[0]
        offset += (length + 3) & ~3
    rx_packets, tx_packets, rx_bytes, tx_bytes, _, _, _, tx_dropped = stats
    carrier = bool(flags & IFF_LOWER_UP)
    return index, (carrier, losses, rx_packets, tx_packets, rx_bytes, tx_bytes, tx_dropped)


def parse_drops(body: bytes) -> tuple[int, int]:
    """Interface index and dropped packets of a qdisc."""
    _, index, _, _, _ = tc.TCMSG.unpack_from(body)
    stats = tc.attributes(tc.attributes(body[tc.TCMSG.size :])[tc.TCA_STATS2])
    return index, _U32.unpack_from(stats[_TCA_STATS_QUEUE], _QUEUE_DROPS_AT)[0]
