"""Watches the kernel's routing tables of many namespaces.

Each event has the new width of a route. The watch must begin before routing starts, so that nothing
is missed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rocelab.linux import fib, netlink
from rocelab.linux.listener import Listener

_GROUPS = (fib.RTNLGRP_IPV4_ROUTE, fib.RTNLGRP_IPV6_ROUTE, fib.RTNLGRP_NEXTHOP)


class FibAction(StrEnum):
    """What happened to a table."""

    SET = "set"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class FibEvent:
    """A route's ECMP width after a change. `time_ns` is CLOCK_REALTIME when the event was read."""

    time_ns: int
    node: str
    action: FibAction
    prefix: str
    width: int


@dataclass(slots=True)
class _Table:
    """The known state of one namespace: group sizes by id, and routes by prefix."""

    group_width: dict[int, int] = field(default_factory=dict)
    group_of: dict[str, int] = field(default_factory=dict)
    prefixes_of: dict[int, set[str]] = field(default_factory=dict)


class FibWatch(Listener):
    """Listens to the tables of `namespace_of`'s nodes until closed."""

    def __init__(self, namespace_of: Mapping[str, int]) -> None:
        self._tables = {node: _Table() for node in namespace_of}
        super().__init__(namespace_of, _GROUPS)

    def events(self, timeout_s: float) -> list[FibEvent]:
        """The events so far, waiting up to `timeout_s` for the first: a list, empty without one."""
        return list(self._events(timeout_s))

    def _events(self, timeout_s: float) -> Iterator[FibEvent]:
        for node, data, now_ns in self.datagrams(timeout_s):
            for kind, body in netlink.messages(data):
                if kind in (fib.RTM_NEWROUTE, fib.RTM_DELROUTE):
                    route = fib.parse_route(body)
                    if route is not None and route.kind == fib.RTN_UNICAST:
                        yield self._route(node, kind, route, now_ns)
                elif kind in (fib.RTM_NEWNEXTHOP, fib.RTM_DELNEXTHOP):
                    yield from self._next_hop(node, kind, body, now_ns)

    def _route(self, node: str, kind: int, route: fib.KernelRoute, now_ns: int) -> FibEvent:
        prefix, group = route.prefix, route.group
        table = self._tables[node]
        old_group = table.group_of.pop(prefix, None)
        if old_group is not None:
            table.prefixes_of[old_group].discard(prefix)
        if kind == fib.RTM_DELROUTE:
            return FibEvent(now_ns, node, FibAction.DELETE, prefix, 0)
        width = len(route.hops)
        if group:
            table.group_of[prefix] = group
            table.prefixes_of.setdefault(group, set()).add(prefix)
            width = table.group_width.get(group, width)
        return FibEvent(now_ns, node, FibAction.SET, prefix, width)

    def _next_hop(self, node: str, kind: int, body: bytes, now_ns: int) -> Iterator[FibEvent]:
        """A next hop or group: the kernel shrinks a group in place when a member loses carrier."""
        attributes = netlink.attributes(body, fib.NHMSG.size)
        identity = netlink.number(attributes.get(fib.NHA_ID, b""))
        width = (
            len(attributes.get(fib.NHA_GROUP, bytes(fib.GROUP_ENTRY.size))) // fib.GROUP_ENTRY.size
        )
        table = self._tables[node]
        prefixes = table.prefixes_of.get(identity, set())
        if kind == fib.RTM_DELNEXTHOP:
            table.group_width.pop(identity, None)
            for prefix in sorted(prefixes):
                del table.group_of[prefix]
                yield FibEvent(now_ns, node, FibAction.DELETE, prefix, 0)
            table.prefixes_of.pop(identity, None)
            return
        before = table.group_width.get(identity)
        table.group_width[identity] = width
        if before != width:
            for prefix in sorted(prefixes):
                yield FibEvent(now_ns, node, FibAction.SET, prefix, width)
