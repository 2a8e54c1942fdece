"""The routes of a network that is wired as it likes, after BGP converged.

`GraphRoutes` takes the place of `rocelab.routes.arrays.routes.Routes`, which needs tiers that
follow each other. A prefix spreads by AS hops from its origins to all switches, for all classes of
destinations at once, as `rocelab.planning.routes.spread` has it for one. A lab of the user's
own routing that was whole has the groups that it had then while all links are up, and shortest
paths otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import NONE, Ints
from rocelab.labfile.observed import ObservedLabSpec
from rocelab.linux.fibtable import Fib, NextHop, Route
from rocelab.routes.arrays.network import Network, NetworkDetails
from rocelab.routes.arrays.routes import Mask, NextHops, PlannedGroups, Routes, classes_of

_WORD = 64


def routes_of(network: Network, link_up: Mask | None = None) -> PlannedGroups:
    """The routes of a network whose links `link_up` (L, all by default) are up. Raises InputError
    for a fabric of a plug-in's kind whose paths cannot be computed."""
    if network.details is None:
        return Routes(network, link_up)
    return GraphRoutes(network, network.details, link_up)


class GraphRoutes:
    """The groups of every switch for every class of destinations.

    slots: every send of the network, then the members of groups.
    """

    def __init__(
        self, network: Network, details: NetworkDetails, link_up: Mask | None = None
    ) -> None:
        self.network = network
        self.up = np.ones(network.links, np.bool_) if link_up is None else link_up
        self.origins, self.nic_class = classes_of(network, self.up)
        self._details = details
        self._groups: dict[tuple[int, ...], int] = {}
        self._members: list[int] = list(range(network.sends))
        shape = (network.nodes, len(self.origins))
        self._start = np.zeros(shape, np.int32)
        self._width = np.zeros(shape, np.int32)
        self._is_origin = np.zeros(shape, np.bool_)
        for origins in self.origins.T:
            (classes,) = np.nonzero(origins != NONE)
            self._is_origin[origins[classes], classes] = True
        self._spread()
        if isinstance(network.spec, ObservedLabSpec) and self.up.all():
            self._take(network.spec.observed.routes)
        self._slots: Ints = np.array(self._members, np.int32)

    @property
    def slots(self) -> Ints:
        return self._slots

    @property
    def weights(self) -> None:
        return None

    def next_hops(self, at: Ints, nic: Ints) -> NextHops:
        """The groups of switches `at` for `nic`, both m: direct for a NIC that is wired to the
        switch; empty for a NIC that the switch announces without a link."""
        network, klass = self.network, self.nic_class[nic]
        known = klass != NONE
        start = np.where(known, self._start[at, klass], 0)
        width = np.where(known, self._width[at, klass], 0)
        for port in range(network.nic_links.shape[1]):
            link = network.nic_links[nic, port]
            is_attached = (link != NONE) & (network.upper[link] == at) & self.up[link]
            start = np.where(is_attached, 2 * link + 1, start)
            width = np.where(is_attached, 1, width)
        none = np.empty(0, np.intp)
        start, width = start.astype(np.int32), width.astype(np.int32)
        return NextHops(start, width, width, none, np.empty((0, 0), np.bool_))

    def members(self, hops: NextHops, row: int) -> Ints:
        """The sends of one of some groups, in the kernel's order."""
        start = int(hops.start[row])
        sends: Ints = self._slots[start : start + int(hops.width[row])]
        return sends

    def _spread(self) -> None:
        network, details = self.network, self._details
        switches = _sends_of_switches(network, details, self.up)
        paths = _AsPaths.of(network, details, self._is_origin)
        reached = self._is_origin.copy()
        frontier = self._is_origin
        silent = (network.tier == 1)[:, None] & details.valley_free
        while frontier.any():
            arrived = np.zeros_like(reached)
            for node, sends, far in switches:
                offered = frontier[far] & ~reached[node] & ~paths.refused(node, far)
                (classes,) = np.nonzero(offered.any(axis=0))
                if len(classes):
                    arrived[node, classes] = True
                    self._keep(node, sends, classes, offered[:, classes])
                    first = offered[:, classes][np.argsort(details.rank[far], kind="stable")]
                    best = np.sort(details.rank[far], kind="stable")[first.argmax(axis=0)]
                    paths.extend(node, classes, far, best, details.rank)
            reached |= arrived
            paths.settle()
            frontier = arrived & ~silent

    def _take(self, observed: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        """Set the groups that a lab of the user's own routing had when it was whole: for each class
        of destinations, those to its first NIC."""
        network = self.network
        send_of = {
            (int(network.sender[send]), network.interface(send)): send
            for send in range(network.sends)
        }
        classes, first = np.unique(self.nic_class, return_index=True)
        addresses = [(klass, network.ip(nic)) for klass, nic in zip(classes, first, strict=True)]
        for name, routes in observed.items():
            node = network.node_number(name)
            fib = Fib(
                tuple(
                    Route(prefix, tuple(NextHop(interface, None) for interface in interfaces))
                    for prefix, interfaces in routes.items()
                )
            )
            for klass, address in addresses:
                route = fib.lookup(address)
                if klass == NONE or route is None or self._is_origin[node, klass]:
                    continue
                sends = tuple(send_of[node, hop.interface] for hop in route.next_hops)
                self._start[node, klass] = self._group(sends) if sends else 0
                self._width[node, klass] = len(sends)

    def _keep(self, node: int, sends: Ints, classes: npt.NDArray[np.intp], offered: Mask) -> None:
        """Set the groups of a switch for some classes. offered: sends x classes."""
        patterns, of_class = np.unique(offered, axis=1, return_inverse=True)
        starts = [self._group(tuple(sends[rows].tolist())) for rows in patterns.T]
        self._start[node, classes] = np.array(starts, np.int32)[of_class]
        self._width[node, classes] = offered.sum(axis=0)

    def _group(self, sends: tuple[int, ...]) -> int:
        if len(sends) == 1:
            return sends[0]
        if sends not in self._groups:
            self._groups[sends] = len(self._members)
            self._members += sends
        return self._groups[sends]


def _sends_of_switches(
    network: Network, details: NetworkDetails, up: Mask
) -> list[tuple[int, Ints, Ints]]:
    """The sends of each switch to others over links that are up, in the kernel's order of next
    hops, and where each leads."""
    is_switch = network.tier > 0
    kept = np.repeat(up, 2) & is_switch[network.sender] & is_switch[network.receiver]
    (sends,) = np.nonzero(kept)
    place = np.lexsort((details.order[sends], network.sender[sends]))
    in_order: Ints = sends[place].astype(np.int32)
    nodes, begins = np.unique(network.sender[in_order], return_index=True)
    ends = [*begins[1:].tolist(), len(in_order)][: len(nodes)]
    parts = [in_order[begin:end] for begin, end in zip(begins.tolist(), ends, strict=True)]
    return [
        (int(node), part, network.receiver[part]) for node, part in zip(nodes, parts, strict=True)
    ]


class _AsPaths:
    """The AS numbers on the path that each switch announces for each class, of those that several
    switches share: with others no path can loop."""

    def __init__(self, number: Ints, paths: npt.NDArray[np.uint64]) -> None:
        self._number = number
        self._paths = paths
        self._new: list[tuple[int, npt.NDArray[np.intp], npt.NDArray[np.uint64]]] = []

    @classmethod
    def of(cls, network: Network, details: NetworkDetails, is_origin: Mask) -> _AsPaths:
        asns, of_node, counts = np.unique(network.asn, return_inverse=True, return_counts=True)
        shared = np.flatnonzero((counts > 1) & (asns != 0) & (not details.shortest))
        place = np.full(len(asns), NONE, np.int32)
        place[shared] = np.arange(len(shared))
        number = place[of_node].astype(np.int32)
        words = -(-len(shared) // _WORD)
        paths = np.zeros((*is_origin.shape, words), np.uint64)
        for node in np.flatnonzero(number != NONE).tolist():
            word, bit = cls._bit(int(number[node]))
            paths[node, is_origin[node], word] = bit
        return cls(number, paths)

    @staticmethod
    def _bit(number: int) -> tuple[int, np.uint64]:
        return number // _WORD, np.uint64(1 << number % _WORD)

    def refused(self, node: int, far: Ints) -> Mask:
        """The classes for which a switch's neighbours `far` announce its own AS number."""
        if self._number[node] == NONE:
            return np.zeros((len(far), self._paths.shape[1]), np.bool_)
        word, bit = self._bit(int(self._number[node]))
        refused: Mask = (self._paths[far, :, word] & bit) != 0
        return refused

    def extend(
        self, node: int, classes: npt.NDArray[np.intp], far: Ints, best: Ints, rank: Ints
    ) -> None:
        """Note the paths of a switch for some classes: those of the neighbours whose rank is
        `best`, and its own AS number."""
        if not self._paths.shape[2]:
            return
        by_rank = dict(zip(rank[far].tolist(), far.tolist(), strict=True))
        source = np.array([by_rank[value] for value in best.tolist()], np.intp)
        paths = self._paths[source, classes].copy()
        if self._number[node] != NONE:
            word, bit = self._bit(int(self._number[node]))
            paths[:, word] |= bit
        self._new.append((node, classes, paths))

    def settle(self) -> None:
        """Take what was noted for the next hop."""
        for node, classes, paths in self._new:
            self._paths[node, classes] = paths
        self._new = []
