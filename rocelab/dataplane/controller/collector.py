"""Collects the routing tables of every switch's kernel and wakes up when something changes.

It watches the switches' namespaces and the lab's folder of demands. A table is read again only
after an event in its switch; `wait` returns the reasons for a round.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rocelab.dataplane.steering.resilient import GROUPS_FROM, IDS_END
from rocelab.linux import fib, inotify, links, namespaces, netlink
from rocelab.linux.closing import Closing
from rocelab.linux.fibtable import Fib

DEBOUNCE_S = 0.003
"""A failed link causes several messages in two switches within a millisecond: one round for all."""

_EVENT_BUFFER = 4 << 20


class Reason(StrEnum):
    """What caused a round."""

    START = "start"
    PERIOD = "period"
    LINK = "link"
    ROUTE = "route"
    DEMAND = "demand"


@dataclass(slots=True)
class _Switch:
    name: str
    reader: socket.socket
    events: socket.socket
    names: dict[int, str]
    routes: tuple[fib.KernelRoute, ...] = ()

    def knows_every_interface(self) -> bool:
        """Whether every interface in the routes existed when names were last read."""
        return all(hop.interface in self.names for route in self.routes for hop in route.hops)


class Collector(Closing):
    """Sockets in every switch, open until closed. `netns_of` gives each switch's namespace."""

    def __init__(self, netns_of: Mapping[str, Path], demands: Path) -> None:
        """Raises OSError where a namespace cannot be entered."""
        self._switches: dict[str, _Switch] = {}
        self._by_descriptor: dict[int, _Switch] = {}
        self._stale: set[str] = set(netns_of)
        self._epoll = select.epoll()
        self._demands = inotify.watch(
            demands, inotify.IN_CLOSE_WRITE | inotify.IN_MOVED_TO | inotify.IN_DELETE
        )
        self._epoll.register(self._demands, select.EPOLLIN)
        try:
            with namespaces.opened(netns_of) as descriptors:
                namespaces.inside_each(descriptors, self._open)
        except BaseException:
            self.close()
            raise

    def _open(self, name: str) -> None:
        groups = (links.RTNLGRP_LINK, fib.RTNLGRP_IPV4_ROUTE, fib.RTNLGRP_IPV6_ROUTE)
        events = netlink.open_socket(groups, _EVENT_BUFFER)
        events.setblocking(False)
        reader = netlink.open_socket(receive_buffer_bytes=4 << 20)
        switch = _Switch(name, reader, events, dict(socket.if_nameindex()))
        self._switches[name] = switch
        self._by_descriptor[events.fileno()] = switch
        self._epoll.register(events, select.EPOLLIN)

    def close(self) -> None:
        """Close every socket."""
        for switch in self._switches.values():
            switch.reader.close()
            switch.events.close()
        os.close(self._demands)
        self._epoll.close()

    def channel(self, switch: str) -> socket.socket:
        """A netlink socket in the switch's namespace, for requests that the kernel answers at
        once."""
        return self._switches[switch].reader

    def forget(self, switch: str) -> None:
        """Mark the routes of a switch as changed, so that they are read again."""
        self._stale.add(switch)

    def routes(self) -> dict[str, tuple[fib.KernelRoute, ...]]:
        """The routes of every switch, read again where something has changed. Raises OSError."""
        for name in sorted(self._stale):
            switch = self._switches[name]
            switch.routes = fib.read_routes(switch.reader)
            if not switch.knows_every_interface():
                interfaces = links.read_links(switch.reader)
                switch.names = {link.index: link.name for link in interfaces}
        self._stale.clear()
        return {name: switch.routes for name, switch in self._switches.items()}

    def fibs(self) -> dict[str, Fib]:
        """The tables of every switch, as `rocelab.linux.fib.read_fib` gives them."""
        routes = self.routes()
        return {
            name: fib.fib_of(routes[name], switch.names) for name, switch in self._switches.items()
        }

    def wait(self, until_s: float) -> set[Reason]:
        """Return some milliseconds after an event, or at `until_s` (monotonic).

        At `until_s` every switch is read again: an event may have been lost.
        """
        reasons: set[Reason] = set()
        while not reasons:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                self._stale.update(self._switches)
                return {Reason.PERIOD}
            reasons = self._drain(left_s)
        time.sleep(DEBOUNCE_S)
        return reasons | self._drain(0)

    def _drain(self, timeout_s: float) -> set[Reason]:
        reasons: set[Reason] = set()
        for descriptor, _ in self._epoll.poll(timeout_s):
            if descriptor == self._demands:
                os.read(self._demands, 1 << 16)
                reasons.add(Reason.DEMAND)
                continue
            switch = self._by_descriptor[descriptor]
            batch, is_one_gone = _read_events(switch.events)
            if is_one_gone:
                switch.names = {}  # the kernel may use its index again under another name
            if batch:
                self._stale.add(switch.name)
                reasons |= batch
        return reasons


def _read_events(events: socket.socket) -> tuple[set[Reason], bool]:
    """The reasons for a round, and whether an interface may have gone."""
    reasons: set[Reason] = set()
    is_one_gone = False
    while True:
        try:
            data = events.recv(netlink.DATAGRAM_BYTES)
        except BlockingIOError:
            return reasons, is_one_gone
        except OSError:  # The buffer has overflowed and events are lost: the switch is read again.
            reasons.add(Reason.ROUTE)
            is_one_gone = True
            continue
        for kind, body in netlink.messages(data):
            if kind in (links.RTM_NEWLINK, links.RTM_DELLINK):
                reasons.add(Reason.LINK)
                is_one_gone |= kind == links.RTM_DELLINK
            elif kind in (fib.RTM_NEWROUTE, fib.RTM_DELROUTE) and not _is_own(body):
                reasons.add(Reason.ROUTE)


def _is_own(body: bytes) -> bool:
    """Whether a message is about a route that the controller has made."""
    group = netlink.attributes(body, fib.RTMSG.size).get(fib.RTA_NH_ID, b"")
    return GROUPS_FROM <= netlink.number(group) < IDS_END
