"""Counts a switch's routes that are missing or too narrow, reading the table only after changes.

Route notifications on a socket say when to read the table again, so that a lab at rest costs almost
nothing. A carrier change triggers a read too: the kernel drops the routes of an interface that goes
down without a notification.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from rocelab.linux import fib, netlink
from rocelab.observe.health.ports import ANSWER_TIMEOUT_S


class RouteReader:
    """Reads a switch's table when it may have changed."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        """`expected`: the number of next hops of each prefix. The calling thread must be in the
        switch's namespace. Raises OSError."""
        self._expected = expected
        self._incomplete: int | None = None
        self._news = netlink.open_socket(
            (fib.RTNLGRP_IPV4_ROUTE, fib.RTNLGRP_IPV6_ROUTE, fib.RTNLGRP_NEXTHOP)
        )
        self._channel = netlink.open_socket(receive_buffer_bytes=4 << 20)
        self._channel.settimeout(ANSWER_TIMEOUT_S)
        self._buffer = bytearray(1 << 17)

    def close(self) -> None:
        """Close the sockets, which keep the namespace alive."""
        self._news.close()
        self._channel.close()

    def incomplete(self, ports_changed: bool) -> int:
        """Routes that are missing or have too few next hops with carrier. Raises OSError."""
        if self._changed() or ports_changed or self._incomplete is None:
            widths = fib.live_widths(fib.read_routes(self._channel))
            self._incomplete = sum(
                widths.get(prefix, 0) < width for prefix, width in self._expected.items()
            )
        return self._incomplete

    def _changed(self) -> bool:
        """Whether a notification came since the last call, or the socket's buffer overflowed."""
        changed = False
        while True:
            try:
                self._news.recv_into(self._buffer, 0, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return changed
            except OSError:
                pass
            changed = True
