"""A node's IPv4 forwarding table: read from a running namespace, or planned from a fabric.

In: a network namespace, or a fabric and the switches whose prefixes matter. Out: a `Fib`, which
answers a longest-prefix lookup with the next hops in the order in which the kernel hashes over
them. The order decides every ECMP choice, so a planned table holds only where the kernel's order
follows from the plan; a table that was read always holds.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyroute2 import IPRoute
from pyroute2.netlink import nlmsg_base
from pyroute2.netlink.rtnl.rtmsg import RTNH_F_DEAD, RTNH_F_LINKDOWN

from labs.errors import InputError, MachineError
from labs.plan.fabric import Fabric, Link, Prefix
from labs.plan.routes import NextHops, expected_width, spread
from labs.runtime.namespaces import inside

_RT_TABLE_MAIN = 254
_RTN_UNICAST = 1
_RTN_DISCARDING = frozenset({6, 7, 8})
"""RTN_BLACKHOLE, RTN_UNREACHABLE and RTN_PROHIBIT of linux/rtnetlink.h."""


@dataclass(frozen=True, slots=True)
class NextHop:
    """Where a packet leaves: an interface, a gateway (None: the destination is on the link).

    `carrier` is False for a next hop that the kernel still hashes over although its link is down.
    """

    interface: str
    gateway: str | None
    weight: int = 1
    carrier: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """A prefix and its next hops in the kernel's order; none means that packets are discarded."""

    prefix: str
    next_hops: tuple[NextHop, ...]


@dataclass(frozen=True)
class Fib:
    """A node's routes, at most one per prefix."""

    routes: tuple[Route, ...]

    @cached_property
    def _by_length(self) -> tuple[tuple[int, dict[int, Route]], ...]:
        tables: dict[int, dict[int, Route]] = {}
        for route in self.routes:
            network = ipaddress.IPv4Network(route.prefix)
            shift = 32 - network.prefixlen
            tables.setdefault(shift, {})[int(network.network_address) >> shift] = route
        return tuple(sorted(tables.items()))

    def lookup(self, address: str) -> Route | None:
        """The route of the longest prefix that holds `address`, None if there is none."""
        value = int(ipaddress.IPv4Address(address))
        for shift, table in self._by_length:
            if route := table.get(value >> shift):
                return route
        return None


FibOf = Callable[[str], Fib]
"""Gives the table of a node, by its name."""


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


def planned_fibs(fabric: Fabric, prefixes: Iterable[Prefix]) -> FibOf:
    """The tables that BGP will build for `prefixes`.

    Each switch also has its connected links. Next hops are ordered by gateway address, as zebra
    sorts them (FRR lib/nexthop.c, nexthop_cmp). The kernel keeps that order where zebra writes
    next hops into the route (`no zebra nexthop kernel enable`); with kernel nexthop objects
    zebra orders a group by the ids of its members, which depends on which session came up first.

    The callable raises InputError for groups whose order the plan does not decide: on unnumbered
    links, or cut by routing.max_paths.
    """
    routes: dict[str, dict[str, NextHops]] = {}
    for prefix in prefixes:
        for name, links in spread(fabric, prefix.origins).items():
            routes.setdefault(name, {})[prefix.prefix] = links
    tables: dict[str, Fib] = {}

    def fib_of(node: str) -> Fib:
        if node not in tables:
            tables[node] = _planned(fabric, node, routes.get(node, {}))
        return tables[node]

    return fib_of


def planned_fib(fabric: Fabric, node: str) -> Fib:
    """The table that BGP will build in the switch `node`. Raises as `planned_fibs` says."""
    return planned_fibs(fabric, fabric.prefixes)(node)


def _planned(fabric: Fabric, node: str, routes: Mapping[str, NextHops]) -> Fib:
    connected = [
        Route(connected_prefix(link, node), (NextHop(link.port(node).interface, None),))
        for link in fabric.links_of[node]
        if link.port(node).address is not None
    ]
    learnt = []
    for prefix, links in routes.items():
        if len(links) > 1 and not fabric.numbered:
            raise InputError(
                f"{node}: the order of the {len(links)} next hops of {prefix} is not planned "
                "on unnumbered links",
                hint="bring the lab up and ask the running kernel, "
                "or set routing.numbering: numbered",
            )
        if expected_width(fabric, links) < len(links):
            raise InputError(
                f"{node}: which {expected_width(fabric, links)} of the {len(links)} next hops of "
                f"{prefix} BGP keeps is not planned",
                hint=f"set routing.max_paths to {len(links)} or more",
            )
        hops = [
            NextHop(link.port(node).interface, link.far(node).ip if fabric.numbered else None)
            for link in links
        ]
        hops.sort(key=lambda hop: int(ipaddress.IPv4Address(hop.gateway or 0)))
        learnt.append(Route(prefix, tuple(hops)))
    return Fib((*connected, *learnt))


def connected_prefix(link: Link, node: str) -> str:
    """What `node` reaches directly over a numbered link: its /31, or the address at its far end."""
    port = link.port(node)
    if port.is_shared:
        return f"{link.far(node).ip}/32"
    return str(ipaddress.IPv4Interface(port.address or "").network)


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
