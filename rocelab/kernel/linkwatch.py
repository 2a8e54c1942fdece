"""The state of every interface of many namespaces, as a stream of changes.

In: namespaces. Out: each change of an interface's administrative state, carrier or operational
state, stamped when it was read. Sources: linux/if_link.h, linux/if.h, and RFC 2863 section 3.1.14
for `operstate` (Documentation/networking/operstates.rst).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rocelab.kernel import netlink
from rocelab.kernel.listener import Listener

RTNLGRP_LINK = 1
RTM_NEWLINK, RTM_GETLINK = 16, 18
NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
IFLA_IFNAME, IFLA_OPERSTATE, IFLA_CARRIER = 3, 16, 33
IFF_UP = 1

_IFINFOMSG = struct.Struct("=BxHiII")
_ALL_LINKS = netlink.HEADER.pack(
    netlink.HEADER.size + _IFINFOMSG.size, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0
) + bytes(_IFINFOMSG.size)


@dataclass(frozen=True, slots=True)
class LinkEvent:
    """An interface after a change. `time_ns` is CLOCK_REALTIME when the event was read.

    `operstate` is the kernel's number: 2 down, 6 up (linux/if.h).
    """

    time_ns: int
    node: str
    interface: str
    up: bool
    carrier: bool
    operstate: int


class LinkWatch:
    """Listens to the interfaces of `namespace_of`'s nodes until closed."""

    def __init__(self, namespace_of: Mapping[str, int]) -> None:
        self._known: dict[tuple[str, str], tuple[bool, bool, int]] = {}
        self._listener = Listener(namespace_of, (RTNLGRP_LINK,), _ALL_LINKS)

    @property
    def overflowed(self) -> set[str]:
        """The nodes whose socket had no room for an event: theirs are incomplete."""
        return self._listener.overflowed

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def __enter__(self) -> LinkWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(self, timeout_s: float) -> Iterator[LinkEvent]:
        """What has changed, waiting up to `timeout_s` for the first event.

        The kernel also tells of interfaces whose state is as it was, after a change of MTU for
        example: that is no change here.
        """
        for node, size, now_ns in self._listener.datagrams(timeout_s):
            for kind, body, end in self._listener.messages(size):
                if kind == RTM_NEWLINK:
                    yield from self._link(node, body, end, now_ns)

    def _link(self, node: str, body: int, end: int, now_ns: int) -> Iterator[LinkEvent]:
        buffer = self._listener.buffer
        flags = _IFINFOMSG.unpack_from(buffer, body)[3]
        name, operstate, carrier = "", 0, False
        for attribute, start, stop in self._listener.attributes(body + _IFINFOMSG.size, end):
            if attribute == IFLA_IFNAME:
                name = buffer[start : stop - 1].decode()
            elif attribute == IFLA_OPERSTATE:
                operstate = buffer[start]
            elif attribute == IFLA_CARRIER:
                carrier = bool(buffer[start])
        state = bool(flags & IFF_UP), carrier, operstate
        before = self._known.get((node, name))
        self._known[node, name] = state
        if before not in (None, state):
            yield LinkEvent(now_ns, node, name, *state)
