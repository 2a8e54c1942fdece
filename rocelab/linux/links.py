"""Reads the interfaces and neighbours of a namespace over netlink, and makes requests for links.

Source: include/uapi/linux/if_link.h, if.h, ip.h, ipv6.h, neighbour.h and ethtool.h; RFC 2863
section 3.1.14 for `operstate` (Documentation/networking/operstates.rst).
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import NamedTuple

from rocelab.linux import netlink

RTNLGRP_LINK = 1
RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_GETADDR, RTM_GETNEIGH, RTM_GETNSID = 22, 30, 90
IFF_UP, IFF_LOWER_UP = 0x1, 1 << 16
IF_LINK_MODE_DORMANT, IF_OPER_DORMANT = 1, 5
NUD_PERMANENT = 0x80
IFINFOMSG = struct.Struct("=BxHiII")

IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_QDISC = 1, 3, 4, 5, 6
IFLA_TXQLEN, IFLA_OPERSTATE, IFLA_LINKMODE, IFLA_LINKINFO, IFLA_STATS64 = 13, 16, 17, 18, 23
IFLA_AF_SPEC, IFLA_NET_NS_FD = 26, 28
IFLA_LINK_NETNSID, IFLA_CARRIER_DOWN_COUNT, IFLA_GRO_MAX_SIZE = 37, 48, 58
IFLA_INFO_KIND, IFLA_INFO_DATA, VETH_INFO_PEER = 1, 2, 1
IFLA_INET_CONF, IFLA_INET6_CONF = 1, 2
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGRO = 0x17, 0x1F, 0x2C
_IFREQ = struct.Struct("16sP16x")
_STATS = struct.Struct("=4Q16x2Q")
"""struct rtnl_link_stats64 up to the dropped packets, without errors."""
_SETTING = struct.Struct("=i")
IFADDRMSG = struct.Struct("=BBBBI")
IFA_ADDRESS, IFA_LOCAL = 1, 2
RT_SCOPE_UNIVERSE = 0
_NETNSA_NSID, _NETNSA_FD = 1, 3
NDMSG = struct.Struct("=BxxxiHBB")
NDA_DST, NDA_LLADDR = 1, 2

IPV4_SETTINGS = (
    *("forwarding", "mc_forwarding", "proxy_arp", "accept_redirects", "secure_redirects"),
    *("send_redirects", "shared_media", "rp_filter", "accept_source_route", "bootp_relay"),
    *("log_martians", "tag", "arp_filter", "medium_id", "disable_xfrm", "disable_policy"),
    *("force_igmp_version", "arp_announce", "arp_ignore", "promote_secondaries", "arp_accept"),
    *("arp_notify", "accept_local", "src_valid_mark", "proxy_arp_pvlan", "route_localnet"),
    *("igmpv2_unsolicited_report_interval", "igmpv3_unsolicited_report_interval"),
    *("ignore_routes_with_linkdown", "drop_unicast_in_l2_multicast", "drop_gratuitous_arp"),
    *("bc_forwarding", "arp_evict_nocarrier"),
)
"""IPV4_DEVCONF_* in their order, by the names of their sysctls."""
IPV6_SETTINGS = (
    *("forwarding", "hop_limit", "mtu", "accept_ra", "accept_redirects", "autoconf"),
    *("dad_transmits", "router_solicitations", "router_solicitation_interval"),
    *("router_solicitation_delay", "use_tempaddr", "temp_valid_lft", "temp_prefered_lft"),
    *("regen_max_retry", "max_desync_factor", "max_addresses", "force_mld_version"),
    *("accept_ra_defrtr", "accept_ra_pinfo", "accept_ra_rtr_pref", "router_probe_interval"),
    *("accept_ra_rt_info_max_plen", "proxy_ndp", "optimistic_dad", "accept_source_route"),
    *("mc_forwarding", "disable_ipv6", "accept_dad", "force_tllao", "ndisc_notify"),
    *("mldv1_unsolicited_report_interval", "mldv2_unsolicited_report_interval"),
    *("suppress_frag_ndisc", "accept_ra_from_local", "use_optimistic", "accept_ra_mtu"),
    *("stable_secret", "use_oif_addrs_only", "accept_ra_min_hop_limit"),
    *("ignore_routes_with_linkdown", "drop_unicast_in_l2_multicast", "drop_unsolicited_na"),
    *("keep_addr_on_down", "router_solicitation_max_interval", "seg6_enabled"),
    *("seg6_require_hmac", "enhanced_dad", "addr_gen_mode", "disable_policy"),
    *("accept_ra_rt_info_min_plen", "ndisc_tclass", "rpl_seg_enabled", "ra_defrtr_metric"),
    *("ioam6_enabled", "ioam6_id", "ioam6_id_wide", "ndisc_evict_nocarrier"),
    "accept_untracked_na",
)
"""DEVCONF_* in their order, by the names of their sysctls."""
_FAMILIES = (
    ("ipv4", socket.AF_INET, IFLA_INET_CONF, IPV4_SETTINGS),
    ("ipv6", socket.AF_INET6, IFLA_INET6_CONF, IPV6_SETTINGS),
)


class LinkCounters(NamedTuple):
    """The counters of an interface since its creation. `tx_dropped` are packets that left a veth
    and that its peer's kernel refused."""

    rx_packets: int
    tx_packets: int
    rx_bytes: int
    tx_bytes: int
    rx_dropped: int
    tx_dropped: int


@dataclass(frozen=True, slots=True)
class KernelLink:
    """An interface. Its attributes, some 40, are decoded on access."""

    index: int
    flags: int
    body: bytes

    @property
    def name(self) -> str:
        return netlink.text(self._find(IFLA_IFNAME))

    @property
    def up(self) -> bool:
        return bool(self.flags & IFF_UP)

    @property
    def carrier(self) -> bool:
        """Whether the interface is up and has carrier."""
        return bool(self.flags & IFF_LOWER_UP)

    @property
    def kind(self) -> str:
        """The kernel's name for what it is, such as `veth`; empty for a device."""
        info = self._find(IFLA_LINKINFO)
        return netlink.text(netlink.find(info, 0, IFLA_INFO_KIND))

    @property
    def peer(self) -> tuple[int, int | None]:
        """The index of a veth pair's other end, and the number of its namespace as this one calls
        it (`read_namespace_number`), None for the same namespace."""
        number = self._find(IFLA_LINK_NETNSID)
        return netlink.number(self._find(IFLA_LINK)), netlink.number(number) if number else None

    @property
    def operstate(self) -> int:
        """The kernel's number: 2 down, 6 up."""
        return self._find(IFLA_OPERSTATE)[0]

    @property
    def dormant(self) -> bool:
        mode = self._find(IFLA_LINKMODE)[0]
        return mode == IF_LINK_MODE_DORMANT or self.operstate == IF_OPER_DORMANT

    @property
    def mtu(self) -> int:
        return netlink.number(self._find(IFLA_MTU))

    @property
    def mac(self) -> str:
        return self._find(IFLA_ADDRESS).hex(":")

    @property
    def qdisc(self) -> str:
        """The name of the root qdisc."""
        return netlink.text(self._find(IFLA_QDISC))

    @property
    def txqlen(self) -> int:
        return netlink.number(self._find(IFLA_TXQLEN))

    @property
    def carrier_losses(self) -> int:
        return netlink.number(self._find(IFLA_CARRIER_DOWN_COUNT))

    @property
    def settings(self) -> dict[str, int]:
        """The interface's own sysctls by family and name, such as `ipv4/rp_filter`: those that the
        kernel reports, of the families that the interface has. Times of IPv6 are in ms."""
        families = self._find(IFLA_AF_SPEC)
        settings = {}
        for family, number, kind, names in _FAMILIES:
            values = netlink.find(netlink.find(families, 0, number), 0, kind)
            for name, (value,) in zip(names, _SETTING.iter_unpack(values), strict=False):
                settings[f"{family}/{name}"] = value
        return settings

    @property
    def counters(self) -> LinkCounters:
        return LinkCounters(*_STATS.unpack_from(self._find(IFLA_STATS64)))

    def _find(self, kind: int) -> bytes:
        return netlink.find(self.body, IFINFOMSG.size, kind)


@dataclass(frozen=True, slots=True)
class InterfaceAddress:
    """An address of an interface; `is_global`: not of the link or the host alone."""

    interface: int
    ip: IPv4Address | IPv6Address
    length: int
    is_global: bool


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A permanent neighbour entry: an address and its MAC address."""

    interface: int
    address: bytes
    mac: str


def read_links(channel: socket.socket) -> list[KernelLink]:
    """The interfaces of the socket's namespace. Raises OSError."""
    return [parse_link(body) for body in netlink.dump(channel, RTM_GETLINK, bytes(IFINFOMSG.size))]


def read_counters() -> dict[str, LinkCounters]:
    """Counters of every interface of the calling thread's namespace, by name, from /proc/net/dev,
    which takes half the time of netlink."""
    counters = {}
    # A name may be any bytes but a slash, a colon and white space.
    text = Path("/proc/thread-self/net/dev").read_text(errors="replace")
    for line in text.rstrip("\n").split("\n")[2:]:
        name, _, figures = line.partition(":")
        field = [int(word) for word in figures.split()]
        counters[name.strip(" ")] = LinkCounters(
            rx_packets=field[1],
            tx_packets=field[9],
            rx_bytes=field[0],
            tx_bytes=field[8],
            rx_dropped=field[3],
            tx_dropped=field[11],
        )
    return counters


def parse_link(body: bytes) -> KernelLink:
    """An interface from the body of its message."""
    _, _, index, flags, _ = IFINFOMSG.unpack_from(body)
    return KernelLink(index, flags, body)


def read_neighbours(channel: socket.socket) -> Iterator[Neighbour]:
    """The permanent neighbours of the socket's namespace, of IPv4 and IPv6. Raises OSError."""
    for body in netlink.dump(channel, RTM_GETNEIGH, bytes(NDMSG.size)):
        _, interface, state, _, _ = NDMSG.unpack_from(body)
        attributes = netlink.attributes(body, NDMSG.size)
        if state & NUD_PERMANENT and NDA_DST in attributes:
            mac = attributes.get(NDA_LLADDR, b"").hex(":")
            yield Neighbour(interface, attributes[NDA_DST], mac)


def read_addresses(channel: socket.socket) -> Iterator[InterfaceAddress]:
    """The addresses of the socket's namespace, of IPv4 and IPv6. Raises OSError."""
    for body in netlink.dump(channel, RTM_GETADDR, bytes(IFADDRMSG.size)):
        _, length, _, scope, interface = IFADDRMSG.unpack_from(body)
        attributes = netlink.attributes(body, IFADDRMSG.size)
        # A point-to-point address has the peer's as IFA_ADDRESS.
        local = attributes.get(IFA_LOCAL) or attributes.get(IFA_ADDRESS)
        if local:
            yield InterfaceAddress(interface, ip_address(local), length, scope == RT_SCOPE_UNIVERSE)


def read_namespace_number(channel: socket.socket, netns: int) -> int | None:
    """The number by which the socket's namespace knows another one, an open descriptor; None if it
    does not (rtnetlink's RTM_GETNSID, net/core/net_namespace.c). Raises OSError."""
    body = bytes(4) + netlink.attribute(_NETNSA_FD, netlink.u32(netns))
    (answer,) = netlink.ask(channel, [netlink.request(RTM_GETNSID, body)])
    number = int.from_bytes(netlink.find(answer, 4, _NETNSA_NSID), sys.byteorder, signed=True)
    return None if number < 0 else number


def veth(
    name: str, peer: str = "", *, index: int = 0, shared: bytes = b"", of_peer: bytes = b""
) -> bytes:
    """A request for a veth pair: an end with that name and index, and its peer with that name and
    the next index; the kernel chooses empty names and indexes 0. Further attributes are for both
    ends and for the peer."""
    far = IFINFOMSG.pack(0, 0, index + 1 if index else 0, 0, 0) + of_peer + shared
    far += _name(peer) if peer else b""
    data = netlink.attribute(VETH_INFO_PEER, far)
    info = netlink.attribute(IFLA_INFO_KIND, b"veth") + netlink.attribute(IFLA_INFO_DATA, data)
    body = IFINFOMSG.pack(0, 0, index, 0, 0) + _name(name) + shared
    body += netlink.attribute(IFLA_LINKINFO, info)
    return netlink.request(RTM_NEWLINK, body, netlink.REQUEST_ACK_CREATE_EXCL)


def _name(name: str) -> bytes:
    return netlink.attribute(IFLA_IFNAME, name.encode() + b"\0")


def set_up(index: int) -> bytes:
    """A request to set an interface up."""
    return netlink.request(RTM_NEWLINK, IFINFOMSG.pack(0, 0, index, IFF_UP, IFF_UP))


def removal(index: int) -> bytes:
    """A request to remove an interface, with its peer if it has one."""
    return netlink.request(RTM_DELLINK, IFINFOMSG.pack(0, 0, index, 0, 0))


def set_offload(control: socket.socket, interface: str, command: int, value: int) -> None:
    """One of ethtool's on-off settings (struct ethtool_value), by any socket of the interface's
    namespace. Raises OSError."""
    setting = array.array("I", (command, value))
    address, _ = setting.buffer_info()
    fcntl.ioctl(control, SIOCETHTOOL, _IFREQ.pack(interface.encode(), address))
