"""What a kernel forgets of an interface that goes down, kept as its own messages and sent back.

When an interface is set down, Linux removes its IPv6 addresses, its permanent neighbours and the
routes over it (net/ipv4/fib_frontend.c, fib_netdev_event; net/ipv6/addrconf.c, addrconf_ifdown;
net/core/neighbour.c, neigh_ifdown). Routes of routing daemons come back by themselves, and those
that the kernel makes for addresses with these; all else was set by somebody and would stay away.
"""

from __future__ import annotations

import errno
import json
import socket
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rocelab.kernel import netlink
from rocelab.kernel.links import IFINFOMSG, IFLA_TXQLEN, RTM_NEWLINK, Link

RTM_NEWADDR, RTM_GETADDR = 20, 22
RTM_NEWROUTE, RTM_GETROUTE = 24, 26
RTM_NEWNEIGH, RTM_GETNEIGH = 28, 30
NUD_PERMANENT = 0x80
RTPROT_KERNEL, RTPROT_STATIC = 2, 4
RTM_F_CLONED = 0x200
RTA_DST, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY = 1, 4, 5, 6
RTA_MULTIPATH, RTA_CACHEINFO, RTA_TABLE, RTA_VIA = 9, 12, 15, 18
IFA_ADDRESS, IFA_LOCAL, IFA_CACHEINFO = 1, 2, 6
IFA_F_PERMANENT = 0x80
NDA_DST, NDA_LLADDR = 1, 2
_IFADDRMSG = struct.Struct("=BBBBI")
_RTMSG = struct.Struct("=BBBBBBBBI")
_NDMSG = struct.Struct("=BxxxiHBB")
_RTNH = struct.Struct("=HBBi")
_RTNH_STATE = 0x01 | 0x10
"""RTNH_F_DEAD and RTNH_F_LINKDOWN, which the kernel sets."""
_TABLE_LOCAL = 255
_SCOPE_LINK = 253

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
    routes = netlink.dump(channel, RTM_GETROUTE, bytes(_RTMSG.size))
    kept = (
        *(_address(each) for each in addresses if _is_kept_address(each, index)),
        *(_neighbour(each) for each in neighbours if _is_kept_neighbour(each, index)),
        *(_route(each) for each in routes if _is_kept_route(each, index)),
    )
    return PortState(port.txqlen, kept)


def to_json(state: PortState) -> str:
    """The state as text."""
    kept = [[each.kind, each.body.hex()] for each in state.kept]
    return json.dumps({"txqlen": state.txqlen, "kept": kept})


def from_json(text: str) -> PortState:
    """The state that `to_json` wrote."""
    document = json.loads(text)
    bodies: dict[int, list[bytes]] = {RTM_NEWADDR: [], RTM_NEWNEIGH: [], RTM_NEWROUTE: []}
    for kind, body in document["kept"]:
        bodies[kind].append(bytes.fromhex(body))
    kept = (
        *map(_address, bodies[RTM_NEWADDR]),
        *map(_neighbour, bodies[RTM_NEWNEIGH]),
        *map(_route, bodies[RTM_NEWROUTE]),
    )
    return PortState(document["txqlen"], kept)


def missing(before: Iterable[Kept], now: Iterable[Kept]) -> tuple[Kept, ...]:
    """Those of `before` that are not there now."""
    there = {each.key for each in now}
    return tuple(each for each in before if each.key not in there)


def send_back(channel: socket.socket, lost: Iterable[Kept]) -> None:
    """Set again what was lost. What somebody else has set meanwhile stays. Raises OSError."""
    for each in lost:
        try:
            netlink.send_batch(
                channel, [netlink.request(each.kind, each.body, netlink.REQUEST_ACK_CREATE_EXCL)]
            )
        except OSError as error:
            if error.errno != errno.EEXIST:
                raise


def _is_kept_address(body: bytes, index: int) -> bool:
    """Not the kernel's own: link-local ones, or those that a router advertises."""
    _, _, flags, scope, interface = _IFADDRMSG.unpack_from(body)
    return interface == index and bool(flags & IFA_F_PERMANENT) and scope != _SCOPE_LINK


def _address(body: bytes) -> Kept:
    family, length, _, _, _ = _IFADDRMSG.unpack_from(body)
    found = netlink.attributes(body, _IFADDRMSG.size)
    found.pop(IFA_CACHEINFO, None)
    ip = found.get(IFA_LOCAL) or found.get(IFA_ADDRESS, b"")
    key = ("address", family, ip, length)
    return Kept(RTM_NEWADDR, body[: _IFADDRMSG.size] + _joined(found), key)


def _is_kept_neighbour(body: bytes, index: int) -> bool:
    _, interface, state, _, _ = _NDMSG.unpack_from(body)
    return interface == index and bool(state & NUD_PERMANENT)


def _neighbour(body: bytes) -> Kept:
    found = netlink.attributes(body, _NDMSG.size)
    kept = {kind: found[kind] for kind in (NDA_DST, NDA_LLADDR) if kind in found}
    key = ("neighbour", body[0], *kept.values())
    return Kept(RTM_NEWNEIGH, body[: _NDMSG.size] + _joined(kept), key)


def _is_kept_route(body: bytes, index: int) -> bool:
    """Not a routing daemon's or the kernel's own."""
    _, _, _, _, table, protocol, _, _, flags = _RTMSG.unpack_from(body)
    found = netlink.attributes(body, _RTMSG.size)
    if not RTPROT_KERNEL < protocol <= RTPROT_STATIC or flags & RTM_F_CLONED:
        return False
    if (netlink.number(found.get(RTA_TABLE, b"")) or table) == _TABLE_LOCAL:
        return False
    hops = _interfaces(found.get(RTA_MULTIPATH))
    return netlink.number(found.get(RTA_OIF, b"")) == index or index in hops


def _route(body: bytes) -> Kept:
    *header, flags = _RTMSG.unpack_from(body)
    family, length, _, tos, table, *_ = header
    found = netlink.attributes(body, _RTMSG.size)
    found.pop(RTA_CACHEINFO, None)
    if RTA_MULTIPATH in found:
        found[RTA_MULTIPATH] = _without_state(found[RTA_MULTIPATH])
    told = (RTA_TABLE, RTA_DST, RTA_PRIORITY, RTA_OIF, RTA_GATEWAY, RTA_VIA)
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
