"""Watches which interfaces of a namespace have carrier, by the kernel's events.

Parses link messages of a route netlink socket (rtnetlink(7)). Parsing is pure and accepts any
bytes. Standard library only.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from struct import Struct

_HEADER = Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence, port
_LINK = Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_ATTRIBUTE = Struct("=HH")  # rtattr: length, type

_RTM_NEWLINK = 16
_RTM_DELLINK = 17
_RTM_GETLINK = 18
_NLM_F_REQUEST = 0x1
_NLM_F_DUMP = 0x300
_RTMGRP_LINK = 1
_IFLA_IFNAME = 3
_IFF_LOWER_UP = 1 << 16
"""Set while the interface is up and has carrier (Linux net/core/dev.c dev_get_flags)."""

_LONGEST_PART = 1 << 16


def carriers(data: bytes) -> Iterator[tuple[str, bool]]:
    """Interface and whether it has carrier, for each link message in `data`, in order.

    A removed interface has none. Other messages and truncated ones are ignored.
    """
    for kind, body in _messages(data):
        if kind in (_RTM_NEWLINK, _RTM_DELLINK) and len(body) >= _LINK.size:
            flags = _LINK.unpack_from(body)[3]
            name = _name(body[_LINK.size :])
            if name:
                yield name, kind == _RTM_NEWLINK and bool(flags & _IFF_LOWER_UP)


def _messages(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        length, kind, *_ = _HEADER.unpack_from(data, at)
        if not _HEADER.size <= length <= len(data) - at:
            return
        yield kind, data[at + _HEADER.size : at + length]
        at += _aligned(length)


def _name(attributes: bytes) -> str | None:
    at = 0
    while at + _ATTRIBUTE.size <= len(attributes):
        length, kind = _ATTRIBUTE.unpack_from(attributes, at)
        if not _ATTRIBUTE.size <= length <= len(attributes) - at:
            return None
        if kind == _IFLA_IFNAME:
            text = attributes[at + _ATTRIBUTE.size : at + length]
            return text.partition(b"\0")[0].decode(errors="replace")
        at += _aligned(length)
    return None


def _aligned(length: int) -> int:
    return (length + 3) & ~3


class CarrierWatch:
    """Receives every link change in the namespace where it is made."""

    def __init__(self) -> None:
        """Requests the state of all links, which the first `read` returns. Raises OSError."""
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE
        )
        self._socket.setblocking(False)
        self._socket.bind((0, _RTMGRP_LINK))
        self._ask()

    def _ask(self) -> None:
        length = _HEADER.size + _LINK.size
        header = _HEADER.pack(length, _RTM_GETLINK, _NLM_F_REQUEST | _NLM_F_DUMP, 0, 0)
        self._socket.send(header + _LINK.pack(socket.AF_UNSPEC, 0, 0, 0, 0))

    def fileno(self) -> int:
        """Readable when something has changed."""
        return self._socket.fileno()

    def read(self) -> dict[str, bool]:
        """The interfaces with events since the last call, and whether each has carrier. Raises
        OSError."""
        states: dict[str, bool] = {}
        while True:
            try:
                states.update(carriers(self._socket.recv(_LONGEST_PART)))
            except BlockingIOError:
                return states
            except OSError as error:
                # The buffer overflowed and changes were lost: request the present state again.
                if error.errno != errno.ENOBUFS:
                    raise
                self._ask()
