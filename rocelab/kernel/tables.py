"""Routing tables and next-hop objects of a namespace, read over one netlink socket in milliseconds.

`rocelab.kernel.fib.read_fib` asks the same of any namespace, once; a controller asks all switches
again after each event, so that here messages are read with `struct` over a socket that stays open.
Formats: linux/rtnetlink.h, linux/nexthop.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address

from rocelab.forwarding.fib import Fib, NextHop, Route
from rocelab.kernel import netlink
from rocelab.plan.addressing import dotted

RTM_GETLINK = 18
RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP = 104, 105, 106
RT_TABLE_MAIN = 254
RTN_UNICAST = 1
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY, RTA_MULTIPATH = 1, 4, 5, 6, 9
RTA_VIA, RTA_NH_ID = 18, 30
RTNH_F_DEAD, RTNH_F_LINKDOWN = 1, 16
IFLA_IFNAME = 3
NHA_ID, NHA_GROUP, NHA_GROUP_TYPE, NHA_OIF, NHA_GATEWAY, NHA_RES_GROUP = 1, 2, 3, 5, 6, 12
NHA_RES_GROUP_BUCKETS = 1
GROUP_TYPE_RESILIENT = 1
SOL_NETLINK, NETLINK_GET_STRICT_CHK = 270, 12

IFINFOMSG = struct.Struct("=BxHiII")
RTMSG = struct.Struct("=BBBBBBBBI")
NHMSG = struct.Struct("=BBBBI")
RTNEXTHOP = struct.Struct("=HBBi")
GROUP_ENTRY = struct.Struct("=IBBH")
_ATTRIBUTE = struct.Struct("=HH")
_U16 = struct.Struct("=H")
_U32 = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class Hop:
    """A next hop of a route: interface index, gateway as its bytes (empty: on the link), weight.

    `carrier` is False where the kernel still hashes over it although its link is down.
    """

    interface: int
    gateway: bytes
    weight: int
    carrier: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """An IPv4 route of the main table. `group` is the id of its next-hop object, 0 if it has none.

    Next hops are in the kernel's order, without those that it has given up.
    """

    destination: int
    length: int
    metric: int
    protocol: int
    kind: int
    group: int
    hops: tuple[Hop, ...]

    @property
    def prefix(self) -> str:
        return f"{dotted(self.destination)}/{self.length}"


@dataclass(frozen=True, slots=True)
class Member:
    """A next-hop object that is a next hop."""

    interface: int
    gateway: bytes


@dataclass(frozen=True, slots=True)
class Group:
    """A next-hop object that is a group: ids and weights; 0 buckets where it is not resilient."""

    members: tuple[tuple[int, int], ...]
    buckets: int


def open_reader() -> socket.socket:
    """A socket for the functions below. The calling thread must be inside the namespace."""
    channel = netlink.open_socket(receive_buffer_bytes=4 << 20)
    channel.setsockopt(SOL_NETLINK, NETLINK_GET_STRICT_CHK, 1)
    return channel


def read_rows(channel: socket.socket) -> tuple[Row, ...]:
    """The routes of the main table that forward or discard. Raises OSError."""
    body = RTMSG.pack(socket.AF_INET, 0, 0, 0, RT_TABLE_MAIN, 0, 0, 0, 0)
    return tuple(
        row
        for answer in netlink.dump(channel, RTM_GETROUTE, body)
        if (row := _row(answer)) is not None
    )


def read_objects(channel: socket.socket) -> tuple[dict[int, Member], dict[int, Group]]:
    """Next hops and groups by id. Raises OSError."""
    members: dict[int, Member] = {}
    groups: dict[int, Group] = {}
    for answer in netlink.dump(channel, RTM_GETNEXTHOP, NHMSG.pack(0, 0, 0, 0, 0)):
        found = dict(attributes(answer, NHMSG.size, len(answer)))
        identity = _U32.unpack(found[NHA_ID])[0]
        if NHA_GROUP in found:
            entries = tuple(
                (number, (high << 8 | low) + 1)
                for number, low, high, _ in GROUP_ENTRY.iter_unpack(found[NHA_GROUP])
            )
            groups[identity] = Group(entries, _buckets(found))
        elif NHA_OIF in found:
            interface = _U32.unpack(found[NHA_OIF])[0]
            members[identity] = Member(interface, found.get(NHA_GATEWAY, b""))
    return members, groups


def read_names(channel: socket.socket) -> dict[int, str]:
    """The name of every interface, by its index. Raises OSError."""
    body = IFINFOMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0)
    names = {}
    for answer in netlink.dump(channel, RTM_GETLINK, body):
        index = IFINFOMSG.unpack_from(answer)[2]
        found = dict(attributes(answer, IFINFOMSG.size, len(answer)))
        names[index] = found[IFLA_IFNAME].rstrip(b"\0").decode()
    return names


def table_of(rows: Iterable[Row], names: Mapping[int, str]) -> Fib:
    """What the kernel looks up: of several routes to a prefix the one with the lowest metric.

    An interface that is in no `names`, because it has just gone, has none of the fabric's.
    """
    best: dict[tuple[int, int], Row] = {}
    for row in rows:
        place = (row.destination, row.length)
        if place not in best or row.metric < best[place].metric:
            best[place] = row
    return Fib(
        tuple(
            Route(
                row.prefix,
                tuple(
                    NextHop(
                        names.get(hop.interface, f"#{hop.interface}"),
                        gateway_text(hop.gateway),
                        hop.weight,
                        hop.carrier,
                    )
                    for hop in row.hops
                ),
            )
            for row in best.values()
        )
    )


def gateway_text(gateway: bytes) -> str | None:
    """A gateway as text, None for none."""
    if not gateway:
        return None
    if len(gateway) == 4:
        return socket.inet_ntoa(gateway)
    return str(IPv6Address(gateway))


def attributes(data: bytes, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """Type and payload of each attribute."""
    while start + 4 <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, start)
        if length < 4:
            return
        yield kind & 0x3FFF, data[start + 4 : start + length]
        start += (length + 3) & ~3


def _row(data: bytes) -> Row | None:
    _, length, _, _, table, protocol, _, kind, flags = RTMSG.unpack_from(data)
    if table != RT_TABLE_MAIN:
        return None
    destination = metric = group = 0
    interface, gateway = None, b""
    hops: tuple[Hop, ...] | None = None
    for attribute, value in attributes(data, RTMSG.size, len(data)):
        if attribute == RTA_DST:
            destination = int.from_bytes(value, "big")
        elif attribute == RTA_OIF:
            interface = _U32.unpack(value)[0]
        elif attribute == RTA_GATEWAY:
            gateway = value
        elif attribute == RTA_VIA:
            gateway = value[2:]
        elif attribute == RTA_PRIORITY:
            metric = _U32.unpack(value)[0]
        elif attribute == RTA_NH_ID:
            group = _U32.unpack(value)[0]
        elif attribute == RTA_MULTIPATH:
            hops = tuple(_members(value))
    if kind != RTN_UNICAST:
        return Row(destination, length, metric, protocol, kind, group, ())
    if hops is None and interface is not None and not flags & RTNH_F_DEAD:
        hops = (Hop(interface, gateway, 1, not flags & RTNH_F_LINKDOWN),)
    return Row(destination, length, metric, protocol, kind, group, hops) if hops else None


def _members(data: bytes) -> Iterator[Hop]:
    start = 0
    while start + RTNEXTHOP.size <= len(data):
        length, flags, weight, interface = RTNEXTHOP.unpack_from(data, start)
        if length < RTNEXTHOP.size:
            return
        gateway = b""
        for attribute, value in attributes(data, start + RTNEXTHOP.size, start + length):
            if attribute == RTA_GATEWAY:
                gateway = value
            elif attribute == RTA_VIA:
                gateway = value[2:]
        if not flags & RTNH_F_DEAD:
            yield Hop(interface, gateway, weight + 1, not flags & RTNH_F_LINKDOWN)
        start += (length + 3) & ~3


def _buckets(found: Mapping[int, bytes]) -> int:
    if _U16.unpack(found.get(NHA_GROUP_TYPE, b"\0\0"))[0] != GROUP_TYPE_RESILIENT:
        return 0
    nested = dict(attributes(found[NHA_RES_GROUP], 0, len(found[NHA_RES_GROUP])))
    return int(_U16.unpack(nested[NHA_RES_GROUP_BUCKETS])[0])
