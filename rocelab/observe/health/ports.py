"""Reads the kernel's counters of a node's ports over one netlink socket that stays open.

A read gives carrier, packets, bytes and drops of each port, in two exchanges per node for any
number of ports. An open socket keeps its namespace alive, so a reader must be closed before its lab
can be removed.

Sources: net/sched/sch_api.c (tc_get_qdisc, tc_qdisc_dump_ignore), drivers/net/veth.c
(veth_newlink).
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

from rocelab.linux import links, netlink, tc

ANSWER_TIMEOUT_S = 5.0
CREATION_LOSSES = 1
"""Losses of carrier that a veth pair counts when it is created."""


@dataclass(frozen=True, slots=True)
class PortReading:
    """The counters of a port since its creation, which itself is no loss of carrier. `lost`:
    packets that left it but its peer's kernel refused (backlog full, larger than the MTU);
    `tc_drops`: packets that a program of its traffic control dropped, on the way in or out."""

    carrier: bool
    carrier_losses: int
    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    lost: int
    tc_drops: int


class PortReader:
    """Reads a node's ports repeatedly."""

    def __init__(self, indexes: Mapping[int, str]) -> None:
        """`indexes` gives the names of the ports to read. The calling thread must be in the node's
        namespace. Raises OSError."""
        self._names = dict(indexes)
        self._channel = netlink.open_socket(receive_buffer_bytes=4 << 20)
        self._channel.settimeout(ANSWER_TIMEOUT_S)
        self._qdiscs = [clsact_request(index) for index in self._names]

    def close(self) -> None:
        """Close the socket, which keeps the namespace alive."""
        self._channel.close()

    def read(self) -> dict[str, PortReading]:
        """The counters of every port now, by interface name. Raises OSError, including
        TimeoutError."""
        interfaces = {link.index: link for link in links.read_links(self._channel)}
        qdiscs = map(tc.parse, netlink.ask(self._channel, self._qdiscs))
        drops = {qdisc.interface: qdisc.counts.dropped for qdisc in qdiscs}
        return {
            name: _reading(link, drops.get(index, 0))
            for index, name in self._names.items()
            if (link := interfaces.get(index)) is not None
        }


def _reading(link: links.KernelLink, tc_drops: int) -> PortReading:
    rx_packets, tx_packets, rx_bytes, tx_bytes, _, lost = link.counters
    return PortReading(
        link.carrier,
        max(0, link.carrier_losses - CREATION_LOSSES),
        rx_packets,
        tx_packets,
        rx_bytes,
        tx_bytes,
        lost,
        tc_drops,
    )


def clsact_request(index: int) -> bytes:
    """A request for a port's clsact qdisc. A port may have none: that is an error, or no answer if
    it had one before (its place then holds a built-in qdisc, which is not dumped)."""
    body = tc.TCMSG.pack(socket.AF_UNSPEC, index, 0, tc.TC_H_CLSACT, 0)
    return netlink.request(tc.RTM_GETQDISC, body, netlink.REQUEST_ACK_ECHO)
