"""The kernel's routing tables of many namespaces, as a stream of events.

In: namespaces, before routing starts so that nothing is missed. Out: the width of every route that
changes. Formats: linux/rtnetlink.h, linux/nexthop.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from rocelab.kernel.listener import Listener
from rocelab.plan.addressing import dotted

RTNLGRP_IPV4_ROUTE = 7
RTNLGRP_NEXTHOP = 32
RTM_NEWROUTE, RTM_DELROUTE = 24, 25
RTM_NEWNEXTHOP, RTM_DELNEXTHOP = 104, 105
RTA_DST, RTA_MULTIPATH, RTA_NH_ID = 1, 9, 30
NHA_ID, NHA_GROUP = 1, 2
RTN_UNICAST = 1

_RTMSG = struct.Struct("=BBBBBBBBI")
_NHMSG = struct.Struct("=BBBBI")
_U16 = struct.Struct("=H")
_U32 = struct.Struct("=I")
_BE32 = struct.Struct(">I")
_GROUP_ENTRY_BYTES = 8


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
    """What is known of one namespace: group sizes by id, and routes by prefix."""

    group_width: dict[int, int] = field(default_factory=dict)
    group_of: dict[str, int] = field(default_factory=dict)
    prefixes_of: dict[int, set[str]] = field(default_factory=dict)


class FibWatch:
    """Listens to the tables of `namespace_of`'s nodes until closed."""

    def __init__(self, namespace_of: Mapping[str, int]) -> None:
        self._tables = {node: _Table() for node in namespace_of}
        self._listener = Listener(namespace_of, (RTNLGRP_IPV4_ROUTE, RTNLGRP_NEXTHOP))
        self._buffer = self._listener.buffer
        self._attributes = self._listener.attributes

    @property
    def overflowed(self) -> set[str]:
        """The nodes whose socket had no room for an event: theirs are incomplete."""
        return self._listener.overflowed

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def __enter__(self) -> FibWatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def events(self, timeout_s: float) -> Iterator[FibEvent]:
        """What has happened, waiting up to `timeout_s` for the first event."""
        for node, size, now_ns in self._listener.datagrams(timeout_s):
            for kind, body, end in self._listener.messages(size):
                if kind in (RTM_NEWROUTE, RTM_DELROUTE):
                    yield from self._route(node, kind, body, end, now_ns)
                elif kind in (RTM_NEWNEXTHOP, RTM_DELNEXTHOP):
                    yield from self._next_hop(node, kind, body, end, now_ns)

    def _route(self, node: str, kind: int, body: int, end: int, now_ns: int) -> Iterator[FibEvent]:
        _, prefix_length, _, _, _, _, _, route_type, _ = _RTMSG.unpack_from(self._buffer, body)
        if route_type != RTN_UNICAST:
            return
        destination, group, width = 0, None, 1
        for attribute, start, stop in self._attributes(body + _RTMSG.size, end):
            if attribute == RTA_DST:
                destination = _BE32.unpack_from(self._buffer, start)[0]
            elif attribute == RTA_NH_ID:
                group = _U32.unpack_from(self._buffer, start)[0]
            elif attribute == RTA_MULTIPATH:
                width = self._multipath_width(start, stop)
        prefix = f"{dotted(destination)}/{prefix_length}"
        table = self._tables[node]
        old_group = table.group_of.pop(prefix, None)
        if old_group is not None:
            table.prefixes_of[old_group].discard(prefix)
        if kind == RTM_DELROUTE:
            yield FibEvent(now_ns, node, FibAction.DELETE, prefix, 0)
            return
        if group is not None:
            table.group_of[prefix] = group
            table.prefixes_of.setdefault(group, set()).add(prefix)
            width = table.group_width.get(group, width)
        yield FibEvent(now_ns, node, FibAction.SET, prefix, width)

    def _next_hop(
        self, node: str, kind: int, body: int, end: int, now_ns: int
    ) -> Iterator[FibEvent]:
        """A next hop or group: the kernel shrinks a group in place when a member loses carrier."""
        identity, width = 0, 1
        for attribute, start, stop in self._attributes(body + _NHMSG.size, end):
            if attribute == NHA_ID:
                identity = _U32.unpack_from(self._buffer, start)[0]
            elif attribute == NHA_GROUP:
                width = (stop - start) // _GROUP_ENTRY_BYTES
        table = self._tables[node]
        prefixes = table.prefixes_of.get(identity, set())
        if kind == RTM_DELNEXTHOP:
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

    def _multipath_width(self, start: int, stop: int) -> int:
        count = 0
        while start + 8 <= stop:
            count += 1
            start += (_U16.unpack_from(self._buffer, start)[0] + 3) & ~3
        return count
