"""Reads routes and next-hop objects of a namespace over netlink.

They are decoded with `struct` and not by a netlink library (`rocelab.linux.netlink` says why).
Routes of a switch mostly have the same next hops, in the same bytes, which are decoded once.

Source: include/uapi/linux/rtnetlink.h and nexthop.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv6Address
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from rocelab.base.errors import MachineError
from rocelab.base.family import Family
from rocelab.linux import netlink
from rocelab.linux.fibtable import Fib, NextHop, Route
from rocelab.linux.namespaces import inside

RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_NEXTHOP = 7, 11, 32
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP = 104, 105, 106
RT_TABLE_MAIN = 254
RTN_UNICAST = 1
RTPROT_KERNEL = 2
"""Of routes that the kernel adds with a port's address."""
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH = 1, 4, 5, 6, 9
RTA_VIA, RTA_NH_ID = 18, 30
RTNH_F_DEAD, RTNH_F_LINKDOWN = 1, 16
NHA_ID, NHA_GROUP, NHA_GROUP_TYPE, NHA_OIF, NHA_GATEWAY, NHA_RES_GROUP = 1, 2, 3, 5, 6, 12
NHA_RES_GROUP_BUCKETS = 1
GROUP_TYPE_RESILIENT = 1
RTMSG = struct.Struct("=BBBBBBBBI")
NHMSG = struct.Struct("=BBBBI")
GROUP_ENTRY = struct.Struct("=IBBH")

_RTNEXTHOP = struct.Struct("=HBBi")
_PORTS_OWN = b"\xfe"
"""The first byte of link-local addresses, fe80::/10; that of multicast ones is higher."""
_DISTINCT_SETS = 4096
"""Cached sets of next hops: more than the switches of a zone have at a time."""


@dataclass(frozen=True, slots=True)
class KernelHop:
    """A next hop of a route: interface index, gateway as its bytes (empty: on the link), weight.

    `carrier` is False if the kernel still hashes over it although its link is down.
    """

    interface: int
    gateway: bytes
    weight: int
    carrier: bool = True


class RawHop(NamedTuple):
    """A struct rtnexthop: where it starts in its attribute, its fields and attributes."""

    start: int
    flags: int
    weight: int
    interface: int
    attributes: bytes


@dataclass(frozen=True, slots=True)
class KernelRoute:
    """A route. `group` is the id of its next-hop object, 0 if it has none.

    Next hops are in the kernel's order, without dead ones.
    """

    family: Family
    destination: int
    length: int
    metric: int
    protocol: int
    kind: int
    group: int
    hops: tuple[KernelHop, ...]

    @property
    def prefix(self) -> str:
        packed = self.destination.to_bytes(self.family.bits // 8)
        return f"{socket.inet_ntop(self.family.number, packed)}/{self.length}"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """A next-hop object that is a next hop."""

    interface: int
    gateway: bytes


@dataclass(frozen=True, slots=True)
class NexthopGroup:
    """A next-hop object that is a group: ids and weights; 0 buckets if it is not resilient."""

    members: tuple[tuple[int, int], ...]
    buckets: int


def read_fib(netns: Path) -> Fib:
    """The main table of a running namespace.

    Groups of nexthop objects come resolved, in the order of the group, because the kernel lists
    them in each route (net.ipv4.nexthop_compat_mode, on by default).

    Raises OSError if the namespace cannot be entered, MachineError if the kernel does not list the
    members of its groups.
    """

    def read() -> Fib:
        with netlink.open_socket(receive_buffer_bytes=4 << 20) as channel:
            return fib_of(read_routes(channel), dict(socket.if_nameindex()))

    return inside(netns, read)


def read_routes(channel: socket.socket, table: int = RT_TABLE_MAIN) -> tuple[KernelRoute, ...]:
    """The routes of a table that forward or discard, of IPv4 and then of IPv6. Raises OSError, and
    MachineError as `parse_route` does."""
    return tuple(chain.from_iterable(_routes_of(family, channel, table) for family in Family))


def _routes_of(family: Family, channel: socket.socket, table: int) -> Iterator[KernelRoute]:
    asked = RTMSG.pack(family.number, 0, 0, 0, table, 0, 0, 0, 0)
    try:
        bodies = netlink.dump(channel, RTM_GETROUTE, asked)
    except FileNotFoundError:  # a table that never had a route
        return
    for body in bodies:
        route = parse_route(body, table)
        # A kernel without a family gives the routes of all others.
        if (
            route is not None
            and route.family is family
            and (route.hops or route.kind != RTN_UNICAST)
        ):
            yield route


def parse_route(body: bytes, of_table: int = RT_TABLE_MAIN) -> KernelRoute | None:
    """A route from the body of its message; None for those of other tables than that one, and for
    what IPv6 has on every port by itself: link-local and multicast addresses.

    Raises MachineError when the kernel does not list the members of a group.
    """
    number, length, _, _, table, protocol, _, kind, flags = RTMSG.unpack_from(body)
    if table != of_table:
        return None
    attributes = netlink.attributes(body, RTMSG.size)
    destination = attributes.get(RTA_DST, b"")
    family = Family.IPV6 if number == socket.AF_INET6 else Family.IPV4
    if family is Family.IPV6 and destination[:1] >= _PORTS_OWN:
        return None
    hops: tuple[KernelHop, ...] = ()
    if kind == RTN_UNICAST:
        if RTA_MULTIPATH in attributes:
            hops = _multipath(attributes[RTA_MULTIPATH])
        elif RTA_OIF in attributes:
            hops = _hops(netlink.number(attributes[RTA_OIF]), 1, flags, attributes)
        elif RTA_NH_ID in attributes:
            raise MachineError(
                "the kernel does not list the next hops of its routes",
                hint="set net.ipv4.nexthop_compat_mode to 1 in this namespace",
            )
    return KernelRoute(
        family,
        int.from_bytes(destination, "big"),
        length,
        netlink.number(attributes.get(RTA_PRIORITY, b"")),
        protocol,
        kind,
        netlink.number(attributes.get(RTA_NH_ID, b"")),
        hops,
    )


def read_objects(channel: socket.socket) -> tuple[dict[int, GroupMember], dict[int, NexthopGroup]]:
    """Next hops and groups by id. Raises OSError."""
    members: dict[int, GroupMember] = {}
    groups: dict[int, NexthopGroup] = {}
    for body in netlink.dump(channel, RTM_GETNEXTHOP, bytes(NHMSG.size)):
        attributes = netlink.attributes(body, NHMSG.size)
        identity = netlink.number(attributes[NHA_ID])
        if NHA_GROUP in attributes:
            entries = tuple(
                (number, (high << 8 | low) + 1)
                for number, low, high, _ in GROUP_ENTRY.iter_unpack(attributes[NHA_GROUP])
            )
            groups[identity] = NexthopGroup(entries, _buckets(attributes))
        elif NHA_OIF in attributes:
            members[identity] = GroupMember(
                netlink.number(attributes[NHA_OIF]), attributes.get(NHA_GATEWAY, b"")
            )
    return members, groups


def used(routes: Iterable[KernelRoute]) -> Iterable[KernelRoute]:
    """The routes that the kernel forwards by: for each prefix the one with the lowest metric
    (net/ipv4/fib_trie.c, fib_table_lookup; net/ipv6/ip6_fib.c, fib6_add_rt2node)."""
    best: dict[tuple[Family, int, int], KernelRoute] = {}
    for route in routes:
        place = (route.family, route.destination, route.length)
        if place not in best or route.metric < best[place].metric:
            best[place] = route
    return best.values()


def routed(routes: Iterable[KernelRoute], names: Mapping[int, str]) -> dict[str, tuple[str, ...]]:
    """Of the routes that daemons or people have set, by prefix, the interfaces of the next hops,
    none for a route that discards; `names` has those of interest by their indexes, and routes by
    others are left out."""
    return {
        route.prefix: tuple(names[hop.interface] for hop in route.hops)
        for route in used(routes)
        if route.protocol != RTPROT_KERNEL and all(hop.interface in names for hop in route.hops)
    }


def live_widths(routes: Iterable[KernelRoute]) -> dict[str, int]:
    """How many next hops with carrier the kernel has for each prefix."""
    return {route.prefix: sum([hop.carrier for hop in route.hops]) for route in used(routes)}


def fib_of(routes: Iterable[KernelRoute], names: Mapping[int, str]) -> Fib:
    """The table that the kernel looks up. An interface missing in `names` has just been removed and
    has no route of the fabric."""
    named: dict[int, tuple[NextHop, ...]] = {}
    rest = []
    for route in used(routes):
        # Routes read together share their next hops.
        hops = named.get(id(route.hops))
        if hops is None:
            hops = tuple(
                NextHop(
                    names.get(hop.interface, f"#{hop.interface}"),
                    gateway_text(hop.gateway),
                    hop.weight,
                    hop.carrier,
                )
                for hop in route.hops
            )
            named[id(route.hops)] = hops
        rest.append(Route(route.prefix, hops))
    return Fib(tuple(rest))


def gateway_text(gateway: bytes) -> str | None:
    """A gateway as text, None for none."""
    if not gateway:
        return None
    if len(gateway) == 4:
        return socket.inet_ntoa(gateway)
    return str(IPv6Address(gateway))


@lru_cache(_DISTINCT_SETS)
def _multipath(data: bytes) -> tuple[KernelHop, ...]:
    return tuple(
        attributes
        for hop in next_hops(data)
        for attributes in _hops(
            hop.interface, hop.weight + 1, hop.flags, netlink.attributes(hop.attributes)
        )
    )


def next_hops(data: bytes) -> Iterator[RawHop]:
    """Each next hop of an RTA_MULTIPATH attribute."""
    start = 0
    while start + _RTNEXTHOP.size <= len(data):
        length, flags, weight, interface = _RTNEXTHOP.unpack_from(data, start)
        if length < _RTNEXTHOP.size:
            return
        attributes = data[start + _RTNEXTHOP.size : start + length]
        yield RawHop(start, flags, weight, interface, attributes)
        start += (length + 3) & ~3


def _hops(
    interface: int, weight: int, flags: int, attributes: Mapping[int, bytes]
) -> tuple[KernelHop, ...]:
    """The next hop, or none if it is dead."""
    if flags & RTNH_F_DEAD:
        return ()
    gateway = attributes.get(RTA_GATEWAY) or attributes.get(RTA_VIA, b"")[2:]
    return (KernelHop(interface, gateway, weight, not flags & RTNH_F_LINKDOWN),)


def _buckets(attributes: Mapping[int, bytes]) -> int:
    if netlink.number(attributes.get(NHA_GROUP_TYPE, b"")) != GROUP_TYPE_RESILIENT:
        return 0
    return netlink.number(netlink.attributes(attributes[NHA_RES_GROUP])[NHA_RES_GROUP_BUCKETS])
