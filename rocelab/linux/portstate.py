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
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from rocelab.linux import fib, links, netlink
from rocelab.linux.fib import RTPROT_KERNEL
from rocelab.linux.links import KernelLink

RTM_NEWADDR, RTM_NEWNEIGH = 20, 28
RTPROT_STATIC = 4
RTM_F_CLONED = 0x200
RTA_CACHEINFO, RTA_TABLE, RTA_ENCAP_TYPE, RTA_ENCAP = 12, 15, 21, 22
IFA_PROTO = 11
NHA_BLACKHOLE, NHA_ENCAP_TYPE, NHA_ENCAP = 4, 7, 8
NTF_PROXY = 0x08
NLA_F_NESTED = 0x8000
IFA_F_PERMANENT = 0x80
_RTNH_STATE = fib.RTNH_F_DEAD | fib.RTNH_F_LINKDOWN
"""What the kernel sets of a next hop's flags."""
_RTNH_F_ONLINK = 0x04
_NHA_SET = (
    *(fib.NHA_ID, fib.NHA_GROUP, fib.NHA_GROUP_TYPE, NHA_BLACKHOLE),
    *(fib.NHA_OIF, fib.NHA_GATEWAY, NHA_ENCAP_TYPE, NHA_ENCAP),
)
"""Attributes of a next hop that a user sets."""
_TABLE_LOCAL = 255
_SETTLES_S, _STEP_S = 5.0, 0.1

Key = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class RestoreMessage:
    """A message that sets something again: its type, its body, and what it is about."""

    kind: int
    body: bytes
    key: Key


@dataclass(frozen=True, slots=True)
class PortState:
    """The state of an interface: its queue length in packets, and what is set on it, addresses
    first."""

    txqlen: int
    kept: tuple[RestoreMessage, ...]


def set_txqlen(index: int, txqlen: int) -> bytes:
    """A request to set an interface's txqlen: the kernel raises a 0 when it gets a first qdisc
    (net/sched/sch_api.c, qdisc_create), clsact included."""
    body = links.IFINFOMSG.pack(0, 0, index, 0, 0) + netlink.attribute(
        links.IFLA_TXQLEN, netlink.u32(txqlen)
    )
    return netlink.request(links.RTM_NEWLINK, body)


def read_port(channel: socket.socket, port: KernelLink) -> PortState:
    """What the kernel would forget of an interface. Raises OSError."""
    index = port.index
    addresses = netlink.dump(channel, links.RTM_GETADDR, bytes(links.IFADDRMSG.size))
    neighbours = netlink.dump(channel, links.RTM_GETNEIGH, bytes(links.NDMSG.size))
    proxies = netlink.dump(channel, links.RTM_GETNEIGH, links.NDMSG.pack(0, 0, 0, NTF_PROXY, 0))
    nexthops = _nexthops(netlink.dump(channel, fib.RTM_GETNEXTHOP, bytes(fib.NHMSG.size)), index)
    ids = {netlink.attributes(body, fib.NHMSG.size)[fib.NHA_ID] for body in nexthops}
    routes = netlink.dump(channel, fib.RTM_GETROUTE, bytes(fib.RTMSG.size))
    kept = (
        # The kernel lists the last one first, and takes the first that fits as a source address.
        *(_address(address) for address in reversed(addresses) if _is_kept_address(address, index)),
        *(
            _neighbour(neighbour)
            for neighbour in neighbours
            if _is_kept_neighbour(neighbour, index)
        ),
        *(_neighbour(proxy) for proxy in proxies if links.NDMSG.unpack_from(proxy)[1] == index),
        *map(_nexthop, nexthops),
        *(_route(route) for route in routes if _is_kept_route(route, index, ids)),
    )
    return PortState(port.txqlen, kept)


def to_json(state: PortState) -> str:
    """The state as text."""
    kept = [[message.kind, message.body.hex()] for message in state.kept]
    return json.dumps({"txqlen": state.txqlen, "kept": kept})


def from_json(text: str) -> PortState:
    """The state that `to_json` wrote."""
    document = json.loads(text)
    kept = tuple(_READ[kind](bytes.fromhex(body)) for kind, body in document["kept"])
    return PortState(document["txqlen"], kept)


def missing(
    before: Iterable[RestoreMessage], now: Iterable[RestoreMessage]
) -> tuple[RestoreMessage, ...]:
    """The objects of `before` that are not there now."""
    present = {kept.key for kept in now}
    return tuple(kept for kept in before if kept.key not in present)


def send_back(channel: socket.socket, lost: Iterable[RestoreMessage]) -> None:
    """Set again what was lost. What somebody else has set meanwhile stays.

    The kernel refuses a route while its source address passes duplicate detection (RFC 4862 section
    5.4): what is refused is tried again for some seconds, and stays lost then.
    """
    left, end = list(lost), time.monotonic() + _SETTLES_S
    while left := [kept for kept in left if _is_refused(channel, kept)]:
        if time.monotonic() > end:
            return
        time.sleep(_STEP_S)


def _is_refused(channel: socket.socket, lost: RestoreMessage) -> bool:
    flags = netlink.REQUEST_ACK_CREATE_EXCL
    if lost.kind == fib.RTM_NEWNEXTHOP:
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
    _, _, flags, _, interface = links.IFADDRMSG.unpack_from(body)
    protocol = netlink.find(body, links.IFADDRMSG.size, IFA_PROTO)
    return interface == index and bool(flags & IFA_F_PERMANENT) and not netlink.number(protocol)


def _address(body: bytes) -> RestoreMessage:
    family, length, _, _, _ = links.IFADDRMSG.unpack_from(body)
    attributes = netlink.attributes(body, links.IFADDRMSG.size)
    ip = attributes.get(links.IFA_LOCAL) or attributes.get(links.IFA_ADDRESS, b"")
    key = ("address", family, ip, length)
    return RestoreMessage(RTM_NEWADDR, body[: links.IFADDRMSG.size] + _joined(attributes), key)


def _is_kept_neighbour(body: bytes, index: int) -> bool:
    _, interface, state, _, _ = links.NDMSG.unpack_from(body)
    return interface == index and bool(state & links.NUD_PERMANENT)


def _neighbour(body: bytes) -> RestoreMessage:
    attributes = netlink.attributes(body, links.NDMSG.size)
    kept = {
        kind: attributes[kind] for kind in (links.NDA_DST, links.NDA_LLADDR) if kind in attributes
    }
    *_, flags, _ = links.NDMSG.unpack_from(body)
    key = ("neighbour", body[0], flags & NTF_PROXY, *kept.values())
    return RestoreMessage(RTM_NEWNEIGH, body[: links.NDMSG.size] + _joined(kept), key)


def _nexthops(bodies: Iterable[bytes], index: int) -> list[bytes]:
    """The next hops over an interface that are not a routing daemon's, then the groups with one."""
    chosen: dict[int, bytes] = {}
    groups = []
    for body in bodies:
        _, _, protocol, _, _ = fib.NHMSG.unpack_from(body)
        attributes = netlink.attributes(body, fib.NHMSG.size)
        if protocol > RTPROT_STATIC:
            continue
        if fib.NHA_GROUP in attributes:
            members = {
                member for member, *_ in fib.GROUP_ENTRY.iter_unpack(attributes[fib.NHA_GROUP])
            }
            groups.append((members, body))
        elif netlink.number(attributes.get(fib.NHA_OIF, b"")) == index:
            chosen[netlink.number(attributes[fib.NHA_ID])] = body
    return [*chosen.values(), *(body for members, body in groups if members & chosen.keys())]


def _nexthop(body: bytes) -> RestoreMessage:
    family, _, protocol, _, flags = fib.NHMSG.unpack_from(body)
    attributes = netlink.attributes(body, fib.NHMSG.size)
    kept = {kind: attributes[kind] for kind in _NHA_SET if kind in attributes}
    if NHA_ENCAP in kept:
        kept[NHA_ENCAP | NLA_F_NESTED] = kept.pop(NHA_ENCAP)
    plain = fib.NHMSG.pack(family, 0, protocol, 0, flags & _RTNH_F_ONLINK)
    return RestoreMessage(fib.RTM_NEWNEXTHOP, plain + _joined(kept), ("nexthop", *kept.values()))


def _is_kept_route(body: bytes, index: int, nexthops: Collection[bytes]) -> bool:
    """Not a routing daemon's or the kernel's own. `nexthops` are the ids of those over it."""
    _, _, _, _, table, protocol, _, _, flags = fib.RTMSG.unpack_from(body)
    attributes = netlink.attributes(body, fib.RTMSG.size)
    if not RTPROT_KERNEL < protocol <= RTPROT_STATIC or flags & RTM_F_CLONED:
        return False
    if (netlink.number(attributes.get(RTA_TABLE, b"")) or table) == _TABLE_LOCAL:
        return False
    if fib.RTA_NH_ID in attributes:
        return attributes[fib.RTA_NH_ID] in nexthops
    hops = _interfaces(attributes.get(fib.RTA_MULTIPATH, b""))
    return netlink.number(attributes.get(fib.RTA_OIF, b"")) == index or index in hops


def _route(body: bytes) -> RestoreMessage:
    *header, flags = fib.RTMSG.unpack_from(body)
    family, length, _, tos, table, *_ = header
    attributes = netlink.attributes(body, fib.RTMSG.size)
    attributes.pop(RTA_CACHEINFO, None)
    if fib.RTA_NH_ID in attributes:
        # The kernel tells what the next hop is, and refuses to be told both.
        for kind in (
            fib.RTA_OIF,
            fib.RTA_GATEWAY,
            fib.RTA_VIA,
            fib.RTA_MULTIPATH,
            RTA_ENCAP_TYPE,
            RTA_ENCAP,
        ):
            attributes.pop(kind, None)
    if fib.RTA_MULTIPATH in attributes:
        attributes[fib.RTA_MULTIPATH] = _without_state(attributes[fib.RTA_MULTIPATH])
    naming = (
        RTA_TABLE,
        fib.RTA_DST,
        fib.RTA_PRIORITY,
        fib.RTA_OIF,
        fib.RTA_GATEWAY,
        fib.RTA_VIA,
        fib.RTA_NH_ID,
    )
    hops = tuple(_interfaces(attributes.get(fib.RTA_MULTIPATH, b"")))
    key = ("route", family, table, length, tos, *(attributes.get(kind) for kind in naming), hops)
    plain = fib.RTMSG.pack(*header, flags & ~_RTNH_STATE)
    return RestoreMessage(fib.RTM_NEWROUTE, plain + _joined(attributes), key)


def _interfaces(hops: bytes) -> list[int]:
    return [hop.interface for hop in fib.next_hops(hops)]


def _without_state(hops: bytes) -> bytes:
    made = bytearray(hops)
    for hop in fib.next_hops(hops):
        made[hop.start + 2] = hop.flags & ~_RTNH_STATE
    return bytes(made)


def _joined(attributes: dict[int, bytes]) -> bytes:
    return b"".join(netlink.attribute(kind, value) for kind, value in attributes.items())


_READ = {
    RTM_NEWADDR: _address,
    RTM_NEWNEIGH: _neighbour,
    fib.RTM_NEWNEXTHOP: _nexthop,
    fib.RTM_NEWROUTE: _route,
}
