"""A node's forwarding table, of IPv4 and IPv6.

A `Fib` answers a longest-prefix lookup with the next hops in the order in which the kernel hashes
over them, which decides every ECMP choice. `rocelab.linux.fib` reads one from a running namespace,
`rocelab.routes.planned` has those that a fabric's plan implies.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class NextHop:
    """The next hop of a packet: an interface and a gateway (None: the destination is on the link).

    `carrier` is False for a next hop that the kernel still hashes to although its link is down.
    """

    interface: str
    gateway: str | None
    weight: int = 1
    carrier: bool = True


@dataclass(frozen=True, slots=True)
class Route:
    """A prefix and its next hops in the kernel's order; an empty tuple means that packets are
    discarded."""

    prefix: str
    next_hops: tuple[NextHop, ...]


@dataclass(frozen=True)
class Fib:
    """A node's routes, at most one per prefix."""

    routes: tuple[Route, ...]

    @cached_property
    def _by_length(self) -> dict[int, tuple[tuple[int, dict[int, Route]], ...]]:
        """Of each version of IP, the routes of each length, the longest first."""
        tables: dict[int, dict[int, dict[int, Route]]] = {4: {}, 6: {}}
        for route in self.routes:
            network = ipaddress.ip_network(route.prefix)
            shift = network.max_prefixlen - network.prefixlen
            by_value = tables[network.version].setdefault(shift, {})
            by_value[int(network.network_address) >> shift] = route
        return {version: tuple(sorted(lengths.items())) for version, lengths in tables.items()}

    def lookup(self, address: str) -> Route | None:
        """The route of the longest prefix that holds `address`, None if there is none."""
        parsed = ipaddress.ip_address(address)
        value = int(parsed)
        for shift, table in self._by_length[parsed.version]:
            if route := table.get(value >> shift):
                return route
        return None


FibOf = Callable[[str], Fib]
"""Returns the table of a node, by name."""
