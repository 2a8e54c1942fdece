"""Reads the forwarding tables of a namespace's bridges and VXLAN tunnels.

Source: include/uapi/linux/neighbour.h; net/core/rtnetlink.c (rtnl_fdb_dump), which lists the
entries of a bridge's port and those of a tunnel itself, which have a destination.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from rocelab.linux import netlink
from rocelab.linux.links import (
    NDA_DST,
    NDA_LLADDR,
    NDMSG,
    NUD_PERMANENT,
    RTM_GETNEIGH,
)

FLOODED = "00:00:00:00:00:00"
"""The MAC address of the entries by which a tunnel sends what goes to all (BUM)."""


@dataclass(frozen=True, slots=True)
class ForwardingEntry:
    """Where packets to a MAC address leave: by an interface, and of a tunnel to which far end."""

    interface: int
    mac: str
    far_end: str | None
    """The address of the tunnel's far end; None on a bridge's port."""
    is_own: bool
    """Whether the MAC is that of the port itself."""


def read_forwarding(channel: socket.socket) -> Iterator[ForwardingEntry]:
    """The entries of all bridges and tunnels of the socket's namespace. Raises OSError."""
    request = NDMSG.pack(socket.AF_BRIDGE, 0, 0, 0, 0)
    for body in netlink.dump(channel, RTM_GETNEIGH, request):
        _, interface, state, _, _ = NDMSG.unpack_from(body)
        attributes = netlink.attributes(body, NDMSG.size)
        far = attributes.get(NDA_DST)
        family = socket.AF_INET if far is None or len(far) == 4 else socket.AF_INET6
        yield ForwardingEntry(
            interface,
            attributes.get(NDA_LLADDR, b"").hex(":"),
            None if far is None else socket.inet_ntop(family, far),
            far is None and bool(state & NUD_PERMANENT),
        )
