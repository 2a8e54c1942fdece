"""What a node's kernel counts of its ports, read over one netlink socket that stays open.

In: a namespace and its ports' interface indexes. Out: carrier, packets, bytes and drops of each
port, in two exchanges per node whatever its ports. An open socket keeps its namespace alive, so a
reader has to be closed before its lab can go.

Source: net/sched/sch_api.c (tc_get_qdisc).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from rocelab.kernel import links, netlink, tc

ANSWER_TIMEOUT_S = 5.0


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
        self._qdiscs = [clsact_request(index) for index in self._names]

    def close(self) -> None:
        """Let the namespace go."""
        self._channel.close()

    def read(self) -> dict[str, PortReading]:
        """Every port now, by interface name. Raises OSError, of which TimeoutError."""
        found = {link.index: link for link in links.read_links(self._channel)}
        qdiscs = map(tc.parse, netlink.ask(self._channel, self._qdiscs))
        drops = {qdisc.interface: qdisc.counts.dropped for qdisc in qdiscs}
        return {
            name: _reading(link, drops.get(index, 0))
            for index, name in self._names.items()
            if (link := found.get(index)) is not None
        }


def _reading(link: links.Link, tc_drops: int) -> PortReading:
    rx_packets, tx_packets, rx_bytes, tx_bytes, _, lost = link.counters
    return PortReading(
        link.carrier,
        link.carrier_losses,
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        lost,
        tc_drops,
    )


def clsact_request(index: int) -> bytes:
    """Asks for the qdisc in front of a port's queues and behind its wire. A port may have none."""
    body = tc.TCMSG.pack(socket.AF_UNSPEC, index, 0, tc.TC_H_CLSACT, 0)
    return netlink.request(tc.RTM_GETQDISC, body, netlink.REQUEST_ECHO)
