"""Which of a switch's routes are missing or too narrow, looked at only when something changed.

In: a namespace, and the width that each prefix must have. Out: a number of routes. A socket that
hears of changes says when to read the table again, so that a lab at rest costs next to nothing;
a change of a port's carrier does too, because the kernel drops the routes of an interface that goes
down without telling.

Source: include/uapi/linux/rtnetlink.h; NETLINK_GET_STRICT_CHK of net/netlink/af_netlink.c.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping

from rocelab.kernel import netlink
from rocelab.kernel.fibwatch import RTNLGRP_IPV4_ROUTE, RTNLGRP_NEXTHOP
from rocelab.measure.health.ports import ANSWER_TIMEOUT_S, NLMSG_DONE, REQUEST_DUMP
from rocelab.plan.addressing import dotted

RTM_GETROUTE = 26
RTM_NEWROUTE = 24
RTA_DST, RTA_MULTIPATH = 1, 9
RT_TABLE_MAIN = 254
RTN_UNICAST = 1
NETLINK_GET_STRICT_CHK = 12
USELESS = 0x01 | 0x10
"""RTNH_F_DEAD and RTNH_F_LINKDOWN."""

_RTMSG = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_HOP = struct.Struct("=HBBi")
_BE32 = struct.Struct(">I")


class RouteReader:
    """Reads a switch's table when it may have changed."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        """`expected` has the next hops of each prefix. The calling thread is in the switch's
        namespace. Raises OSError."""
        self._expected = expected
        self._incomplete: int | None = None
        self._news = netlink.open_socket((RTNLGRP_IPV4_ROUTE, RTNLGRP_NEXTHOP))
        self._channel = netlink.open_socket(receive_buffer_bytes=4 << 20)
        self._channel.setsockopt(netlink.SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
        self._channel.settimeout(ANSWER_TIMEOUT_S)
        self._buffer = bytearray(1 << 17)
        body = _RTMSG.pack(socket.AF_INET, 0, 0, 0, RT_TABLE_MAIN, 0, 0, 0, 0)
        self._request = (
            netlink.HEADER.pack(netlink.HEADER.size + len(body), RTM_GETROUTE, REQUEST_DUMP, 0, 0)
            + body
        )

    def close(self) -> None:
        """Let the namespace go."""
        self._news.close()
        self._channel.close()

    def incomplete(self, ports_changed: bool) -> int:
        """Routes that are missing or have too few next hops with carrier. Raises OSError."""
        if self._changed() or ports_changed or self._incomplete is None:
            self._channel.send(self._request)
            widths = dict(self._routes())
            self._incomplete = sum(
                widths.get(prefix, 0) < width for prefix, width in self._expected.items()
            )
        return self._incomplete

    def _changed(self) -> bool:
        """Whether anything was told since the last call, or too much for the socket's buffer."""
        changed = False
        while True:
            try:
                self._news.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return changed
            except OSError:
                pass
            changed = True

    def _routes(self) -> Iterator[tuple[str, int]]:
        while True:
            size = self._channel.recv_into(self._buffer)
            offset = 0
            while offset + netlink.HEADER.size <= size:
                length, kind, *_ = netlink.HEADER.unpack_from(self._buffer, offset)
                if kind == NLMSG_DONE:
                    return
                if kind == RTM_NEWROUTE:
                    body = bytes(self._buffer[offset + netlink.HEADER.size : offset + length])
                    route = parse_route(body)
                    if route is not None:
                        yield route
                offset += (length + 3) & ~3


def parse_route(body: bytes) -> tuple[str, int] | None:
    """A route's prefix and how many next hops with carrier it has; None for other than unicast
    routes of the main table."""
    _, length, _, _, table, _, _, kind, flags = _RTMSG.unpack_from(body)
    if table != RT_TABLE_MAIN or kind != RTN_UNICAST:
        return None
    destination, width, offset = 0, int(not flags & USELESS), _RTMSG.size
    while offset + 4 <= len(body):
        size, attribute = _ATTRIBUTE.unpack_from(body, offset)
        if attribute == RTA_DST:
            destination = _BE32.unpack_from(body, offset + 4)[0]
        elif attribute == RTA_MULTIPATH:
            width = _live_hops(body[offset + 4 : offset + size])
        offset += (size + 3) & ~3
    return f"{dotted(destination)}/{length}", width


def _live_hops(hops: bytes) -> int:
    offset, live = 0, 0
    while offset + _HOP.size <= len(hops):
        length, flags, _, _ = _HOP.unpack_from(hops, offset)
        live += not flags & USELESS
        offset += (length + 3) & ~3
    return live
