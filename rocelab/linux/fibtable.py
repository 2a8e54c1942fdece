"""A node's IPv4 forwarding table.

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
"""Returns the table of a node, by name."""
