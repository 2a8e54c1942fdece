"""What a kernel forgets of an interface that goes down, kept as its own messages and sent back.

When an interface is set down, Linux removes its IPv6 addresses, its permanent neighbours and those
that it answers for, and next hops and routes over it (net/ipv4/fib_frontend.c, fib_netdev_event;
net/ipv4/nexthop.c, nexthop_flush_dev; net/ipv6/addrconf.c, addrconf_ifdown; net/core/neighbour.c,
neigh_ifdown). Routes of routing daemons come back by themselves, and those that the kernel makes
for addresses with these; all else was set by somebody and would stay away.
"""

from __future__ import annotations

import errno
import json
import socket
import struct
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from rocelab.kernel import netlink
from rocelab.kernel.links import IFINFOMSG, IFLA_TXQLEN, RTM_NEWLINK, Link

RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30
NUD_PERMANENT = 0x80
RTM_NEWNEXTHOP, RTM_GETNEXTHOP = 104, 106
RTPROT_KERNEL, RTPROT_STATIC = 2, 4
RTM_F_CLONED = 0x200
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY = 1, 4, 5, 6
RTA_MULTIPATH, RTA_CACHEINFO, RTA_TABLE, RTA_VIA = 9, 12, 15, 18
RTA_ENCAP_TYPE, RTA_ENCAP, RTA_NH_ID = 21, 22, 30
IFA_ADDRESS, IFA_LOCAL, IFA_PROTO = 1, 2, 11
NHA_ID, NHA_GROUP, NHA_GROUP_TYPE, NHA_BLACKHOLE = 1, 2, 3, 4
NHA_OIF, NHA_GATEWAY, NHA_ENCAP_TYPE, NHA_ENCAP = 5, 6, 7, 8
NTF_PROXY = 0x08
NLA_F_NESTED = 0x8000
IFA_F_PERMANENT = 0x80
NDA_DST, NDA_LLADDR = 1, 2
_IFADDRMSG = struct.Struct("=BBBBI")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTNH = struct.Struct("=HBBi")
_RTNH_STATE = 0x01 | 0x10
"""RTNH_F_DEAD and RTNH_F_LINKDOWN, which the kernel sets."""
_RTNH_F_ONLINK = 0x04
_NHA_SET = (
    *(NHA_ID, NHA_GROUP, NHA_GROUP_TYPE, NHA_BLACKHOLE),
    *(NHA_OIF, NHA_GATEWAY, NHA_ENCAP_TYPE, NHA_ENCAP),
)
"""Attributes of a next hop that a user sets."""
_NHMSG = struct.Struct("=BBBxI")
_NEXTHOP_GRP = struct.Struct("=IBBH")
_TABLE_LOCAL = 255
_SETTLES_S, _STEP_S = 5.0, 0.1

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """A message that sets something again: its type, its body, and what it is about."""

    kind: int
    body: bytes
    key: Key


@dataclass(frozen=True, slots=True)
class PortState:
    """The state of an interface: its queue length in packets, and what is set on it, addresses
    first."""

    txqlen: int
    kept: tuple[Kept, ...]


def set_txqlen(index: int, txqlen: int) -> bytes:
    """A request to set an interface's txqlen: the kernel raises a 0 when it gets a first qdisc
    (net/sched/sch_api.c, qdisc_create), clsact included."""
    body = IFINFOMSG.pack(0, 0, index, 0, 0) + netlink.attribute(IFLA_TXQLEN, netlink.u32(txqlen))
    return netlink.request(RTM_NEWLINK, body)


def read_port(channel: socket.socket, port: Link) -> PortState:
    """What the kernel would forget of an interface. Raises OSError."""
    index = port.index
    addresses = netlink.dump(channel, RTM_GETADDR, bytes(_IFADDRMSG.size))
    neighbours = netlink.dump(channel, RTM_GETNEIGH, bytes(_NDMSG.size))
    proxies = netlink.dump(channel, RTM_GETNEIGH, _NDMSG.pack(0, 0, 0, NTF_PROXY, 0))
    nexthops = _nexthops(netlink.dump(channel, RTM_GETNEXTHOP, bytes(_NHMSG.size)), index)
    ids = {netlink.attributes(body, _NHMSG.size)[NHA_ID] for body in nexthops}
    routes = netlink.dump(channel, RTM_GETROUTE, bytes(_RTMSG.size))
    kept = (
        # The kernel lists the last one first, and takes the first that fits as a source address.
        *(_address(each) for each in reversed(addresses) if _is_kept_address(each, index)),
        *(_neighbour(each) for each in neighbours if _is_kept_neighbour(each, index)),
        *(_neighbour(each) for each in proxies if _NDMSG.unpack_from(each)[1] == index),
        *map(_nexthop, nexthops),
        *(_route(each) for each in routes if _is_kept_route(each, index, ids)),
    )
    return PortState(port.txqlen, kept)


def to_json(state: PortState) -> str:
    """The state as text."""
    kept = [[each.kind, each.body.hex()] for each in state.kept]
    return json.dumps({"txqlen": state.txqlen, "kept": kept})


def from_json(text: str) -> PortState:
    """The state that `to_json` wrote."""
    document = json.loads(text)
    kept = tuple(_READ[kind](bytes.fromhex(body)) for kind, body in document["kept"])
    return PortState(document["txqlen"], kept)


def missing(before: Iterable[Kept], now: Iterable[Kept]) -> tuple[Kept, ...]:
    """Those of `before` that are not there now."""
    there = {each.key for each in now}
    return tuple(each for each in before if each.key not in there)


def send_back(channel: socket.socket, lost: Iterable[Kept]) -> None:
    """Set again what was lost. What somebody else has set meanwhile stays.

    The kernel refuses a route while its source address passes duplicate detection (RFC 4862 section
    5.4): what is refused is tried again for some seconds, and stays lost then.
    """
    left, end = list(lost), time.monotonic() + _SETTLES_S
    while left := [each for each in left if _is_refused(channel, each)]:
        if time.monotonic() > end:
            return
        time.sleep(_STEP_S)


def _is_refused(channel: socket.socket, lost: Kept) -> bool:
    flags = netlink.REQUEST_ACK_CREATE_EXCL
    if lost.kind == RTM_NEWNEXTHOP:
        # A group may still be there, with fewer members.
        flags = netlink.REQUEST_ACK_REPLACE
    try:
        netlink.send_batch(channel, [netlink.request(lost.kind, lost.body, flags)])
    except OSError as error:
        return error.errno != errno.EEXIST
    return False


def _is_kept_address(body: bytes, index: int) -> bool:
    """Not the kernel's own, such as those that a router advertises. Before Linux 5.18 no address
    says so: a link-local one is then set again as the kernel would."""
    _, _, flags, _, interface = _IFADDRMSG.unpack_from(body)
    own = netlink.find(body, _IFADDRMSG.size, IFA_PROTO)
    return interface == index and bool(flags & IFA_F_PERMANENT) and not netlink.number(own)


def _address(body: bytes) -> Kept:
    family, length, _, _, _ = _IFADDRMSG.unpack_from(body)
    found = netlink.attributes(body, _IFADDRMSG.size)
    ip = found.get(IFA_LOCAL) or found.get(IFA_ADDRESS, b"")
    key = ("address", family, ip, length)
    return Kept(RTM_NEWADDR, body[: _IFADDRMSG.size] + _joined(found), key)


def _is_kept_neighbour(body: bytes, index: int) -> bool:
    _, interface, state, _, _ = _NDMSG.unpack_from(body)
    return interface == index and bool(state & NUD_PERMANENT)


def _neighbour(body: bytes) -> Kept:
    found = netlink.attributes(body, _NDMSG.size)
    kept = {kind: found[kind] for kind in (NDA_DST, NDA_LLADDR) if kind in found}
    *_, flags, _ = _NDMSG.unpack_from(body)
    key = ("neighbour", body[0], flags & NTF_PROXY, *kept.values())
    return Kept(RTM_NEWNEIGH, body[: _NDMSG.size] + _joined(kept), key)


def _nexthops(bodies: Iterable[bytes], index: int) -> list[bytes]:
    """Those over an interface that are not a routing daemon's, then the groups that have one."""
    chosen: dict[int, bytes] = {}
    groups = []
    for body in bodies:
        _, _, protocol, _ = _NHMSG.unpack_from(body)
        found = netlink.attributes(body, _NHMSG.size)
        if protocol > RTPROT_STATIC:
            continue
        if NHA_GROUP in found:
            members = {member for member, *_ in _NEXTHOP_GRP.iter_unpack(found[NHA_GROUP])}
            groups.append((members, body))
        elif netlink.number(found.get(NHA_OIF, b"")) == index:
            chosen[netlink.number(found[NHA_ID])] = body
    return [*chosen.values(), *(body for members, body in groups if members & chosen.keys())]


def _nexthop(body: bytes) -> Kept:
    family, _, protocol, flags = _NHMSG.unpack_from(body)
    found = netlink.attributes(body, _NHMSG.size)
    kept = {kind: found[kind] for kind in _NHA_SET if kind in found}
    if NHA_ENCAP in kept:
        kept[NHA_ENCAP | NLA_F_NESTED] = kept.pop(NHA_ENCAP)
    plain = _NHMSG.pack(family, 0, protocol, flags & _RTNH_F_ONLINK)
    return Kept(RTM_NEWNEXTHOP, plain + _joined(kept), ("nexthop", *kept.values()))


def _is_kept_route(body: bytes, index: int, nexthops: Collection[bytes]) -> bool:
    """Not a routing daemon's or the kernel's own. `nexthops` are the ids of those over it."""
    _, _, _, _, table, protocol, _, _, flags = _RTMSG.unpack_from(body)
    found = netlink.attributes(body, _RTMSG.size)
    if not RTPROT_KERNEL < protocol <= RTPROT_STATIC or flags & RTM_F_CLONED:
        return False
    if (netlink.number(found.get(RTA_TABLE, b"")) or table) == _TABLE_LOCAL:
        return False
    if RTA_NH_ID in found:
        return found[RTA_NH_ID] in nexthops
    hops = _interfaces(found.get(RTA_MULTIPATH))
    return netlink.number(found.get(RTA_OIF, b"")) == index or index in hops


def _route(body: bytes) -> Kept:
    *header, flags = _RTMSG.unpack_from(body)
    family, length, _, tos, table, *_ = header
    found = netlink.attributes(body, _RTMSG.size)
    found.pop(RTA_CACHEINFO, None)
    if RTA_NH_ID in found:
        # The kernel tells what the next hop is, and refuses to be told both.
        for kind in (RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_MULTIPATH, RTA_ENCAP_TYPE, RTA_ENCAP):
            found.pop(kind, None)
    if RTA_MULTIPATH in found:
        found[RTA_MULTIPATH] = _without_state(found[RTA_MULTIPATH])
    told = (RTA_TABLE, RTA_DST, RTA_PRIORITY, RTA_OIF, RTA_GATEWAY, RTA_VIA, RTA_NH_ID)
    hops = tuple(_interfaces(found.get(RTA_MULTIPATH)))
    key = ("route", family, table, length, tos, *(found.get(kind) for kind in told), hops)
    plain = _RTMSG.pack(*header, flags & ~_RTNH_STATE)
    return Kept(RTM_NEWROUTE, plain + _joined(found), key)


def _interfaces(hops: bytes | None) -> list[int]:
    return [interface for _, _, _, interface in _hops(hops)] if hops else []


def _hops(hops: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Offset, length, flags and interface of each next hop (struct rtnexthop)."""
    offset = 0
    while offset + _RTNH.size <= len(hops):
        length, flags, _, interface = _RTNH.unpack_from(hops, offset)
        if length < _RTNH.size:
            return
        yield offset, length, flags, interface
        offset += (length + 3) & ~3


def _without_state(hops: bytes) -> bytes:
    made = bytearray(hops)
    for offset, _, flags, _ in _hops(hops):
        made[offset + 2] = flags & ~_RTNH_STATE
    return bytes(made)


def _joined(attributes: dict[int, bytes]) -> bytes:
    return b"".join(netlink.attribute(kind, value) for kind, value in attributes.items())


_READ = {
    RTM_NEWADDR: _address,
    RTM_NEWNEIGH: _neighbour,
    RTM_NEWNEXTHOP: _nexthop,
    RTM_NEWROUTE: _route,
}
