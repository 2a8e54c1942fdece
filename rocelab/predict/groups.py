"""The next hops of a switch for a destination NIC, in the order of its ECMP group.

A `GroupOf` returns the group of a node and a NIC, from the switches' tables or from the tables that
BGP will build. Planned groups are computed only for the NICs in use, so that a traffic matrix over
a large fabric needs no table of all routes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

from rocelab.errors import InputError
from rocelab.forwarding.fib import FibOf
from rocelab.forwarding.path import NoPathError
from rocelab.plan.fabric import Fabric, Link, Nic
from rocelab.plan.routes import NextHops, expected_width, spread
from rocelab.predict.wires import Wires


@dataclass(frozen=True, slots=True)
class Group:
    """The sends that a switch chooses from, in its kernel's order, and their weights."""

    sends: tuple[int, ...]
    weights: tuple[int, ...]


GroupOf = Callable[[int, int], Group]
"""Returns the group of a node for a NIC, both by number. Raises NoPathError if there is none."""


def read_groups(wires: Wires, fib_of: FibOf) -> GroupOf:
    """Groups of tables that were read or planned elsewhere."""
    fabric = wires.fabric
    sends = {
        (port.node, port.interface): wires.send(link, port.node)
        for link in fabric.links
        for port in (link.a, link.b)
    }

    def group_of(node: int, nic: int) -> Group:
        name, ip = fabric.nodes[node].name, wires.nics[nic].ip
        route = fib_of(name).lookup(ip) if fabric.nodes[node].is_switch else None
        if route is None or not route.next_hops:
            raise NoPathError(
                f"{name}: no route to {ip}",
                hint="rocelab status says whether the fabric has converged",
            )
        for hop in route.next_hops:
            if not hop.carrier:
                raise NoPathError(
                    f"{name}: {route.prefix} still uses {hop.interface}, whose link is down"
                )
            if (name, hop.interface) not in sends:
                raise NoPathError(f"{name}: {hop.interface} leads out of the fabric")
        return Group(
            tuple(sends[name, hop.interface] for hop in route.next_hops),
            tuple(hop.weight for hop in route.next_hops),
        )

    return group_of


def planned_groups(wires: Wires) -> GroupOf:
    """Groups as BGP will build them and zebra will order them (`rocelab.forwarding.fib`).

    On unnumbered links the order depends on the daemons' start and not on the plan
    (`order_is_planned`): links are then in the plan's order. Raises InputError for groups that
    routing.max_paths cuts.
    """
    fabric = wires.fabric
    holders = _Holders(fabric)
    spreads: dict[tuple[str, ...], dict[str, NextHops]] = {}
    ordered: dict[tuple[int, NextHops], Group] = {}

    def group_of(node: int, nic: int) -> Group:
        name, target = fabric.nodes[node].name, wires.nics[nic]
        for link in target.links:
            if link.b.node == name:
                return Group((wires.send(link, name),), (1,))
        origins = holders.origins(target)
        if origins not in spreads:
            spreads[origins] = spread(fabric, origins)
        links = spreads[origins].get(name)
        if not links:
            raise NoPathError(f"{name}: no route to {target.ip}")
        if (node, links) not in ordered:
            ordered[node, links] = _ordered(wires, name, target, links)
        return ordered[node, links]

    return group_of


def order_is_planned(fabric: Fabric) -> bool:
    """Whether the order of next hops follows from the plan."""
    return fabric.numbered


def _ordered(wires: Wires, name: str, nic: Nic, links: NextHops) -> Group:
    fabric = wires.fabric
    if expected_width(fabric, links) < len(links):
        raise InputError(
            f"{name}: which {expected_width(fabric, links)} of the {len(links)} next hops to "
            f"{nic.ip} BGP keeps is not planned",
            hint=f"set routing.max_paths to {len(links)} or more",
        )

    def gateway(link: Link) -> int:
        return int(IPv4Address(link.far(name).ip))

    in_order = sorted(links, key=gateway) if order_is_planned(fabric) else links
    return Group(tuple(wires.send(link, name) for link in in_order), (1,) * len(links))


class _Holders:
    """The switches that announce the longest prefix that holds an address."""

    def __init__(self, fabric: Fabric) -> None:
        by_length: dict[int, dict[int, tuple[str, ...]]] = {}
        for prefix in fabric.prefixes:
            network = IPv4Network(prefix.prefix)
            shift = 32 - network.prefixlen
            table = by_length.setdefault(shift, {})
            table[int(network.network_address) >> shift] = prefix.origins
        self._by_length: tuple[tuple[int, Mapping[int, tuple[str, ...]]], ...] = tuple(
            sorted(by_length.items())
        )

    def origins(self, nic: Nic) -> tuple[str, ...]:
        value = int(IPv4Address(nic.ip))
        for shift, table in self._by_length:
            if value >> shift in table:
                return table[value >> shift]
        raise NoPathError(f"no switch announces {nic.ip}")
