"""The tables of running switches as groups of next hops, for many flows at once.

`TableGroups` takes the place of planned `rocelab.routes.arrays.routes.Routes`.
"""

from __future__ import annotations

import socket

import numpy as np

from rocelab.base.arrays import NONE, Ints
from rocelab.linux.fibtable import FibOf
from rocelab.planning.fabric import Fabric
from rocelab.routes.arrays.network import Network
from rocelab.routes.arrays.routes import NextHops
from rocelab.routes.path import NoPathError, no_route

_Group = tuple[tuple[int, int], ...]
"""Sends and their weights, in the kernel's order."""


class TableGroups:
    """The groups of read tables; each is a range of `slots`."""

    def __init__(self, fabric: Fabric, network: Network, fib_of: FibOf) -> None:
        self._fabric = fabric
        self.network = network
        self.up = np.ones(network.links, np.bool_)
        self._fib_of = fib_of
        self._send_of = {
            (network.node_names[int(network.sender[send])], network.interface(send)): send
            for send in range(network.sends)
        }
        self._members: list[tuple[int, int]] = []
        self._start: dict[tuple[int, _Group], int] = {}

    @property
    def slots(self) -> Ints:
        return np.array([send for send, _ in self._members], np.int32)

    @property
    def weights(self) -> Ints:
        return np.array([weight for _, weight in self._members], np.int32)

    def next_hops(self, at: Ints, nic: Ints) -> NextHops:
        """The groups of switches `at` for `nic`, both m. Raises NoPathError where a table has no
        route, or one that does not lead on."""
        places, row = np.unique(at.astype(np.int64) * self.network.nics + nic, return_inverse=True)
        ranges = [self._range(*divmod(place, self.network.nics)) for place in places.tolist()]
        start, width = np.array(ranges, np.int32).reshape(-1, 2)[row].T
        none = np.empty(0, np.intp)
        return NextHops(start, width, width, none, np.empty((0, 0), np.bool_))

    def _range(self, node: int, nic: int) -> tuple[int, int]:
        group = self._group(node, nic)
        if (node, group) not in self._start:
            self._start[node, group] = len(self._members)
            self._members += group
        return self._start[node, group], len(group)

    def _group(self, node: int, nic: int) -> _Group:
        network = self.network
        name, ip = network.node_names[node], network.ip(nic)
        if network.tenants is not None and network.tenants.of_nic[nic] != NONE:
            if node == network.nic_leaf[nic]:
                return ((int(2 * network.nic_links[nic, 0] + 1), 1),)
            ip = socket.inet_ntop(socket.AF_INET, network.tenants.leaf_address[nic].tobytes())
        route = self._fib_of(name).lookup(ip) if self.network.tier[node] else None
        if route is None or not route.next_hops:
            raise no_route(self._fabric, name, ip)
        for hop in route.next_hops:
            if not hop.carrier:
                port = self._fabric.port_name(name, hop.interface)
                raise NoPathError(f"{name}: {route.prefix} still uses {port}, whose link is down")
            if (name, hop.interface) not in self._send_of:
                raise NoPathError(f"{name}: {hop.interface} leads out of the fabric")
        return tuple((self._send_of[name, hop.interface], hop.weight) for hop in route.next_hops)
