"""Watches the state of every interface of many namespaces.

An event is a change of an interface's administrative state, carrier or operational state, stamped
when it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rocelab.linux import links, netlink
from rocelab.linux.listener import Listener

_ALL_LINKS = netlink.request(links.RTM_GETLINK, bytes(links.IFINFOMSG.size), netlink.REQUEST_DUMP)


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


class LinkWatch(Listener):
    """Listens to the interfaces of `namespace_of`'s nodes until closed."""

    def __init__(self, namespace_of: Mapping[str, int]) -> None:
        self._known: dict[tuple[str, str], tuple[bool, bool, int]] = {}
        super().__init__(namespace_of, (links.RTNLGRP_LINK,), _ALL_LINKS)

    def events(self, timeout_s: float) -> Iterator[LinkEvent]:
        """The changes so far, waiting up to `timeout_s` for the first.

        The kernel also notifies about interfaces whose state did not change, for example after a
        change of MTU: these are left out.
        """
        for node, data, now_ns in self.datagrams(timeout_s):
            for kind, body in netlink.messages(data):
                if kind == links.RTM_NEWLINK:
                    yield from self._link(node, links.parse_link(body), now_ns)

    def _link(self, node: str, link: links.KernelLink, now_ns: int) -> Iterator[LinkEvent]:
        state = link.up, link.carrier, link.operstate
        before = self._known.get((node, link.name))
        self._known[node, link.name] = state
        if before not in (None, state):
            yield LinkEvent(now_ns, node, link.name, *state)
