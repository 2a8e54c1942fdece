"""Requests for links, addresses, neighbours, routes and rules, beside what pyroute2 encodes."""

from __future__ import annotations

from socket import AF_INET, AF_INET6

from pyroute2.netlink import nlmsg
from pyroute2.netlink.rtnl.fibmsg import fibmsg
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.ndmsg import ndmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from rocelab.linux import rtnetlink

CREATE, CHANGE, REPLACE = 0x605, 0x005, 0x505
NEWLINK, NEWADDR, NEWROUTE, NEWNEIGH, NEWRULE = 16, 20, 24, 28, 32
END = [
    ("IFLA_GROUP", 7),
    ("IFLA_TXQLEN", 32767),
    ("IFLA_IFNAME", "rtsw1"),
    ("IFLA_MTU", 9000),
    ("IFLA_ADDRESS", "02:00:0a:ff:80:01"),
    ("IFLA_NUM_TX_QUEUES", 1),
    ("IFLA_NUM_RX_QUEUES", 1),
    ("IFLA_NET_NS_FD", 12),
]


def encoded(message: nlmsg, kind: int, how: int, attributes: object, **fields: int) -> bytes:
    """A request as pyroute2 writes it."""
    for name, value in fields.items():
        message[name] = value
    message["attrs"] = attributes
    message["header"]["type"] = kind
    message["header"]["flags"] = how
    message.encode()
    return bytes(message.data)


def test_a_veth_and_its_peer() -> None:
    kind = [
        ("IFLA_INFO_KIND", "veth"),
        ("IFLA_INFO_DATA", {"attrs": [("VETH_INFO_PEER", {"index": 9, "attrs": END})]}),
    ]
    theirs = [*END[2:], ("IFLA_LINKINFO", {"attrs": kind})]
    peer = rtnetlink.veth_to(END, index=9)
    assert rtnetlink.new_link([*END[2:], peer], index=8) == encoded(
        ifinfmsg(), NEWLINK, CREATE, theirs, index=8
    )


def test_a_bridge_and_a_port_of_it() -> None:
    name = ("IFLA_IFNAME", "bridge")
    theirs = [name, ("IFLA_LINKINFO", {"attrs": [("IFLA_INFO_KIND", "bridge")]})]
    assert rtnetlink.new_link([name, rtnetlink.of_kind("bridge")], flags=1, change=1) == encoded(
        ifinfmsg(), NEWLINK, CREATE, theirs, flags=1, change=1
    )
    assert rtnetlink.change_link([("IFLA_MASTER", 2)], index=3) == encoded(
        ifinfmsg(), NEWLINK, CHANGE, [("IFLA_MASTER", 2)], index=3
    )


def test_changes_of_a_link() -> None:
    state = [("IFLA_OPERSTATE", "DORMANT"), ("IFLA_LINKMODE", 1)]
    message = rtnetlink.change_link([("IFLA_OPERSTATE", 5), ("IFLA_LINKMODE", 1)], index=3)
    assert message == encoded(ifinfmsg(), NEWLINK, CHANGE, state, index=3)
    assert rtnetlink.change_link(index=3, flags=1, change=1) == encoded(
        ifinfmsg(), NEWLINK, CHANGE, [], index=3, flags=1, change=1
    )


def test_addresses_and_neighbours() -> None:
    address = [("IFA_LOCAL", "198.18.0.1"), ("IFA_ADDRESS", "198.18.0.2")]
    fields = {"family": AF_INET, "prefixlen": 31, "index": 4}
    assert rtnetlink.new_address(address, **fields) == encoded(
        ifaddrmsg(), NEWADDR, CREATE, address, **fields
    )
    for family, ip in ((AF_INET, "198.18.0.2"), (AF_INET6, "fe80::aff:fe80:1")):
        neighbour = [("NDA_DST", ip), ("NDA_LLADDR", "02:00:0a:ff:80:01")]
        fields = {"family": family, "ifindex": 4, "state": 0x80}
        assert rtnetlink.put_neighbour(neighbour, **fields) == encoded(
            ndmsg(), NEWNEIGH, REPLACE, neighbour, **fields
        )


def test_a_route_over_several_links() -> None:
    fields = {"family": AF_INET, "table": 254, "proto": 4, "type": 1}
    gateways = {5: "198.18.0.2", 6: "198.18.1.2"}
    result = [("RTA_MULTIPATH", [rtnetlink.GatewayHop(*hop) for hop in gateways.items()])]
    theirs = [
        {"oif": oif, "hops": 0, "attrs": [("RTA_GATEWAY", ip)]} for oif, ip in gateways.items()
    ]
    assert rtnetlink.put_route(result, **fields) == encoded(
        rtmsg(), NEWROUTE, REPLACE, [("RTA_MULTIPATH", theirs)], **fields
    )


def test_a_rule_for_packets_from_an_address() -> None:
    attributes = [("FRA_SRC", "198.18.0.2"), ("FRA_PRIORITY", 102)]
    fields = {"family": AF_INET, "src_len": 32, "table": 102, "action": 1}
    assert rtnetlink.add_rule(attributes, **fields) == encoded(
        fibmsg(), NEWRULE, CREATE, attributes, **fields
    )
