"""The forwarding tables that a fabric's plan implies.

A planned table is valid only if the kernel's order of next hops follows from the plan; a table that
was read (`rocelab.linux.fib`) is always valid.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from rocelab.base.errors import InputError
from rocelab.base.family import Family
from rocelab.labfile.stacks import DEFAULT_STACK
from rocelab.linux.fibtable import Fib, FibOf, NextHop, Route
from rocelab.planning.fabric import Fabric, Link, Port, Prefix
from rocelab.planning.routes import NextHops, expected_width, spread


def planned_fibs(fabric: Fabric, prefixes: Iterable[Prefix]) -> FibOf:
    """The tables that BGP will build for `prefixes`.

    Each switch also has its connected links. Next hops are ordered by gateway address, as zebra
    sorts them (FRR lib/nexthop.c, nexthop_cmp). The kernel keeps that order if zebra writes next
    hops into the route (`no zebra nexthop kernel enable`); with kernel nexthop objects
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
            NextHop(
                link.port(node).interface, gateway_of(fabric, link.far(node), Family.of(prefix))
            )
            for link in links
        ]
        hops.sort(key=lambda hop: int(ipaddress.ip_address(hop.gateway or 0)))
        learnt.append(Route(prefix, tuple(hops)))
    return Fib((*connected, *learnt))


def gateway_of(fabric: Fabric, far: Port, family: Family) -> str | None:
    """The address of a next hop. Of IPv6 FRR takes the link-local one."""
    if not fabric.numbered:
        return None
    is_link_local = family is Family.IPV6 and fabric.spec.routing.stack == DEFAULT_STACK
    return far.link_local if is_link_local else far.ip


def connected_prefix(link: Link, node: str) -> str:
    """The prefix that `node` reaches directly over a numbered link: its /31 or /127, or the address
    at its far end."""
    port = link.port(node)
    if port.is_shared:
        return f"{link.far(node).ip}/{Family.of(link.far(node).ip).bits}"
    return str(ipaddress.ip_interface(port.address or "").network)
