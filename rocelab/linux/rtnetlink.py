"""Encodes requests to change links, addresses, neighbours, routes and rules.

Fields and attributes have the kernel's names (include/uapi/linux/if_link.h, veth.h, if_addr.h,
neighbour.h, rtnetlink.h and fib_rules.h). Messages of every kind begin with a struct of fields, 0
where nothing else is said, and attributes follow in the order in which they are given.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from rocelab.linux import netlink
from rocelab.linux.fib import RTA_GATEWAY, RTM_NEWROUTE
from rocelab.linux.links import IFLA_INFO_DATA, IFLA_INFO_KIND, RTM_NEWLINK, VETH_INFO_PEER
from rocelab.linux.netlink import REQUEST_ACK, REQUEST_ACK_CREATE_EXCL, REQUEST_ACK_REPLACE
from rocelab.linux.portstate import RTM_NEWADDR, RTM_NEWNEIGH

RTM_NEWRULE = 32
FR_ACT_TO_TBL = 1
IFLA_INFO_SLAVE_KIND, IFLA_INFO_SLAVE_DATA = 4, 5

Attribute = tuple[str, object]
Attributes = Sequence[Attribute]
Encoder = Callable[..., bytes]


class GatewayHop(NamedTuple):
    """A next hop of a route: struct rtnexthop with the interface's index, and the gateway."""

    interface: int
    gateway: str


def new_link(attributes: Attributes, **fields: int) -> bytes:
    """The request for a link that there is not."""
    return netlink.request(RTM_NEWLINK, _LINK.body(attributes, fields), REQUEST_ACK_CREATE_EXCL)


def change_link(attributes: Attributes = (), **fields: int) -> bytes:
    """The request that changes a link."""
    return netlink.request(RTM_NEWLINK, _LINK.body(attributes, fields), REQUEST_ACK)


def of_kind(kind: str) -> Attribute:
    """The attribute that makes a new link of that kind, such as a bridge."""
    return "IFLA_LINKINFO", netlink.attribute(IFLA_INFO_KIND, _text(kind))


def veth_to(attributes: Attributes, **fields: int) -> Attribute:
    """The attribute that makes a new link a veth, with those attributes and fields of its peer."""
    peer = netlink.attribute(VETH_INFO_PEER, _LINK.body(attributes, fields))
    kind = netlink.attribute(IFLA_INFO_KIND, _text("veth"))
    return "IFLA_LINKINFO", kind + netlink.attribute(IFLA_INFO_DATA, peer)


def bridge(attributes: Attributes) -> Attribute:
    """The attribute that makes a new link a bridge with those attributes."""
    return _with_data("bridge", attributes, _BRIDGE)


def vxlan(attributes: Attributes) -> Attribute:
    """The attribute that makes a new link an end of VXLAN tunnels with those attributes."""
    return _with_data("vxlan", attributes, _VXLAN)


def bridge_port(attributes: Attributes) -> Attribute:
    """The attribute that changes a link as a port of its bridge."""
    kind = netlink.attribute(IFLA_INFO_SLAVE_KIND, _text("bridge"))
    data = netlink.attribute(IFLA_INFO_SLAVE_DATA, _encoded(attributes, _BRIDGE_PORT))
    return "IFLA_LINKINFO", kind + data


def _with_data(
    kind: str, attributes: Attributes, known: Mapping[str, tuple[int, Encoder]]
) -> Attribute:
    data = netlink.attribute(IFLA_INFO_DATA, _encoded(attributes, known))
    return "IFLA_LINKINFO", netlink.attribute(IFLA_INFO_KIND, _text(kind)) + data


def new_address(attributes: Attributes, **fields: int) -> bytes:
    """The request for an address that the link does not have."""
    return netlink.request(RTM_NEWADDR, _ADDRESS.body(attributes, fields), REQUEST_ACK_CREATE_EXCL)


def put_neighbour(attributes: Attributes, **fields: int) -> bytes:
    """The request for a neighbour, in place of one with this address."""
    return netlink.request(RTM_NEWNEIGH, _NEIGHBOUR.body(attributes, fields), REQUEST_ACK_REPLACE)


def put_route(attributes: Attributes, **fields: int) -> bytes:
    """The request for a route, in place of one to this prefix."""
    return netlink.request(RTM_NEWROUTE, _ROUTE.body(attributes, fields), REQUEST_ACK_REPLACE)


def add_rule(attributes: Attributes, **fields: int) -> bytes:
    """The request for a rule that there is not, of which packets look up which table."""
    return netlink.request(RTM_NEWRULE, _RULE.body(attributes, fields), REQUEST_ACK_CREATE_EXCL)


class _Message(NamedTuple):
    """A kind of message: its fields, and its attributes' numbers and encoders."""

    layout: struct.Struct
    fields: tuple[str, ...]
    attributes: Mapping[str, tuple[int, Encoder]]

    def body(self, attributes: Attributes, fields: Mapping[str, int]) -> bytes:
        unknown = fields.keys() - set(self.fields)
        assert not unknown, unknown
        start = self.layout.pack(*(fields.get(name, 0) for name in self.fields))
        return start + _encoded(attributes, self.attributes)


def _encoded(attributes: Attributes, known: Mapping[str, tuple[int, Encoder]]) -> bytes:
    encoded = []
    for name, value in attributes:
        number, encode = known[name]
        encoded.append(netlink.attribute(number, encode(value)))
    return b"".join(encoded)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _ip(value: str) -> bytes:
    return socket.inet_pton(socket.AF_INET6 if ":" in value else socket.AF_INET, value)


def _mac(value: str) -> bytes:
    return bytes.fromhex(value.replace(":", ""))


def _hops(hops: Sequence[GatewayHop]) -> bytes:
    encoded = []
    for hop in hops:
        gateway = netlink.attribute(RTA_GATEWAY, _ip(hop.gateway))
        encoded.append(struct.pack("=HBBi", 8 + len(gateway), 0, 0, hop.interface) + gateway)
    return b"".join(encoded)


def _port_range(ends: tuple[int, int]) -> bytes:
    """struct ifla_vxlan_port_range."""
    return struct.pack("!HH", *ends)


_byte = partial(struct.pack, "=B")
_port = partial(struct.pack, "!H")

_LINK = _Message(
    struct.Struct("=BxHiII"),
    ("family", "ifi_type", "index", "flags", "change"),
    {
        "IFLA_ADDRESS": (1, _mac),
        "IFLA_IFNAME": (3, _text),
        "IFLA_MTU": (4, netlink.u32),
        "IFLA_MASTER": (10, netlink.u32),
        "IFLA_TXQLEN": (13, netlink.u32),
        "IFLA_OPERSTATE": (16, _byte),
        "IFLA_LINKMODE": (17, _byte),
        "IFLA_LINKINFO": (18, bytes),
        "IFLA_GROUP": (27, netlink.u32),
        "IFLA_NET_NS_FD": (28, netlink.u32),
        "IFLA_NUM_TX_QUEUES": (31, netlink.u32),
        "IFLA_NUM_RX_QUEUES": (32, netlink.u32),
        "IFLA_GSO_MAX_SEGS": (40, netlink.u32),
        "IFLA_GRO_MAX_SIZE": (58, netlink.u32),
    },
)
_BRIDGE: Mapping[str, tuple[int, Encoder]] = {
    "IFLA_BR_AGEING_TIME": (4, netlink.u32),
    "IFLA_BR_STP_STATE": (5, netlink.u32),
    "IFLA_BR_MCAST_SNOOPING": (23, _byte),
}
_VXLAN: Mapping[str, tuple[int, Encoder]] = {
    "IFLA_VXLAN_ID": (1, netlink.u32),
    "IFLA_VXLAN_LOCAL": (4, _ip),
    "IFLA_VXLAN_TOS": (6, _byte),
    "IFLA_VXLAN_LEARNING": (7, _byte),
    "IFLA_VXLAN_PORT_RANGE": (10, _port_range),
    "IFLA_VXLAN_PORT": (15, _port),
    "IFLA_VXLAN_UDP_CSUM": (18, _byte),
    "IFLA_VXLAN_TTL_INHERIT": (28, bytes),
}
_BRIDGE_PORT: Mapping[str, tuple[int, Encoder]] = {
    "IFLA_BRPORT_LEARNING": (8, _byte),
    "IFLA_BRPORT_NEIGH_SUPPRESS": (32, _byte),
}
_ADDRESS = _Message(
    struct.Struct("=BBBBI"),
    ("family", "prefixlen", "flags", "scope", "index"),
    {"IFA_ADDRESS": (1, _ip), "IFA_LOCAL": (2, _ip)},
)
_NEIGHBOUR = _Message(
    struct.Struct("=BxxxiHBB"),
    ("family", "ifindex", "state", "flags", "ndm_type"),
    {"NDA_DST": (1, _ip), "NDA_LLADDR": (2, _mac)},
)
_ROUTE = _Message(
    struct.Struct("=BBBBBBBBI"),
    ("family", "dst_len", "src_len", "tos", "table", "proto", "scope", "type", "flags"),
    {
        "RTA_DST": (1, _ip),
        "RTA_OIF": (4, netlink.u32),
        "RTA_PRIORITY": (6, netlink.u32),
        "RTA_MULTIPATH": (9, _hops),
    },
)
_RULE = _Message(
    struct.Struct("=BBBBBxxBI"),
    ("family", "dst_len", "src_len", "tos", "table", "action", "flags"),
    {"FRA_SRC": (2, _ip), "FRA_PRIORITY": (6, netlink.u32)},
)
