"""A running namespace's IPv4 forwarding table, as its kernel gives it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink import nlmsg_base
from pyroute2.netlink.rtnl.rtmsg import RTNH_F_DEAD, RTNH_F_LINKDOWN

from rocelab.errors import MachineError
from rocelab.forwarding.fib import Fib, NextHop, Route
from rocelab.kernel.namespaces import inside

_RT_TABLE_MAIN = 254
_RTN_UNICAST = 1
_RTN_DISCARDING = frozenset({6, 7, 8})
"""RTN_BLACKHOLE, RTN_UNREACHABLE and RTN_PROHIBIT of linux/rtnetlink.h."""


def read_fib(netns: Path) -> Fib:
    """The main table of a running namespace.

    Groups of nexthop objects come resolved, in the order of the group, because the kernel lists
    them in each route (net.ipv4.nexthop_compat_mode, on by default). Next hops that it has given
    up are left out, and where a prefix has several routes the usable one with the lowest metric
    stays, as in fib_table_lookup (net/ipv4/fib_trie.c).

    Raises OSError when the namespace can not be entered, MachineError when the kernel does not
    list the members of its groups.
    """
    messages, names = inside(netns, _dump)
    best: dict[str, tuple[int, Route]] = {}
    for message in messages:
        if message.get_attr("RTA_TABLE") != _RT_TABLE_MAIN:
            continue
        route = _route(message, names)
        if route is None:
            continue
        metric = message.get_attr("RTA_PRIORITY") or 0
        if route.prefix not in best or metric < best[route.prefix][0]:
            best[route.prefix] = (metric, route)
    return Fib(tuple(route for _, route in best.values()))


def _dump() -> tuple[list[nlmsg_base], dict[int, str]]:
    with IPRoute() as netlink:
        messages = list(netlink.get_routes(family=socket.AF_INET))
    return messages, dict(socket.if_nameindex())


def _route(message: nlmsg_base, names: Mapping[int, str]) -> Route | None:
    """The route of a netlink message, None if it forwards nothing and discards nothing."""
    prefix = str(ipaddress.IPv4Network((message.get_attr("RTA_DST") or 0, message["dst_len"])))
    if message["type"] in _RTN_DISCARDING:
        return Route(prefix, ())
    if message["type"] != _RTN_UNICAST:
        return None
    members = message.get_attr("RTA_MULTIPATH")
    if members is None:
        oif = message.get_attr("RTA_OIF")
        if oif is None:
            raise MachineError(
                f"the kernel does not list the next hops of {prefix}",
                hint="set net.ipv4.nexthop_compat_mode to 1 in this namespace",
            )
        flags = message["flags"]
        hops = [] if flags & RTNH_F_DEAD else [_next_hop(message, oif, 1, flags, names)]
    else:
        hops = [
            _next_hop(member, member["oif"], member["hops"] + 1, member["flags"], names)
            for member in members
            if not member["flags"] & RTNH_F_DEAD
        ]
    return Route(prefix, tuple(hops)) if hops else None


def _next_hop(
    holder: nlmsg_base, index: int, weight: int, flags: int, names: Mapping[int, str]
) -> NextHop:
    via = holder.get_attr("RTA_VIA")
    gateway = via["addr"] if via else holder.get_attr("RTA_GATEWAY")
    return NextHop(names[index], gateway, weight, not flags & RTNH_F_LINKDOWN)
