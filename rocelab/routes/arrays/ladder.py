"""The sends of each switch as ranges: the fabric's wiring, up or not.

`slots` orders all sends so that a switch's links to the tier above, or to any run of switches
below, are consecutive. A group of next hops is then a start and a width.

This needs a regular fabric: the uplinks of a switch lead to the next tier and are consecutive, by
upper switch and then by parallel link, to upper switches that follow each other, and all switches
of a tier have equally many. A plug-in's kind may have none of this, and is then refused by name.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import NONE, Ints
from rocelab.base.errors import InputError
from rocelab.routes.arrays.network import Network


class Ladder:
    """Links up and down of every switch.

    leaves, spines, tops: nodes of tiers 1 to 3. row: of each node among the leaves, or among the
    spines and tops together, N. slots: sends, first all up, in order of links, then all down, by
    upper node.
    """

    def __init__(self, network: Network) -> None:
        """Raises InputError if the fabric is not regular."""
        links = network.links
        self.network = network
        tier = network.tier
        self.leaves, self.spines, self.tops = (
            np.flatnonzero(tier == level).astype(np.int32) for level in (1, 2, 3)
        )
        self.row = np.zeros(network.nodes, np.int32)
        self.row[self.leaves] = np.arange(len(self.leaves))
        self.row[self.spines] = np.arange(len(self.spines))
        self.row[self.tops] = len(self.spines) + np.arange(len(self.tops))
        self.uplinks = np.bincount(network.lower, minlength=network.nodes).astype(np.int32)
        self.first_up = np.zeros(network.nodes, np.int32)
        self.first_up[network.lower[::-1]] = np.arange(links, dtype=np.int32)[::-1]
        self._lowest = np.zeros(network.nodes, np.int32)
        self._pair = np.ones(network.nodes, np.int32)
        climbing = np.flatnonzero((self.uplinks > 0) & (tier > 0))
        first = self.first_up[climbing]
        last = first + self.uplinks[climbing] - 1
        self._lowest[climbing] = network.upper[first]
        self._pair[climbing] = network.parallel[last]
        irregular = self._irregular(climbing)
        if irregular:
            kind = network.spec.fabric.kind
            raise InputError(
                f"paths in a fabric of kind {kind} cannot be computed: {irregular}",
                "a lab of it can be brought up; predictions and simulations need a regular fabric",
            )
        order = np.argsort(network.upper, kind="stable").astype(np.int32)
        self._down_key = (
            network.upper[order].astype(np.int64) * network.nodes + network.lower[order]
        )
        self._down_slot = np.empty(links, np.int32)
        self._down_slot[order] = np.arange(links, 2 * links, dtype=np.int32)
        ups = np.arange(0, 2 * links, 2, dtype=np.int32)
        self.slots: Ints = np.concatenate((ups, 2 * order + 1))

    def _irregular(self, climbing: npt.NDArray[np.intp]) -> str | None:
        """What is not regular in the fabric, if anything. `climbing`: switches with uplinks."""
        network, count, pair = self.network, self.uplinks[climbing], self._pair[climbing]
        node = np.repeat(climbing, count)
        place = np.arange(len(node)) - np.repeat(np.cumsum(count) - count, count)
        link, wide = self.first_up[node] + place, np.repeat(pair, count)
        rules = {
            "uplinks that do not follow each other": network.lower[link] == node,
            "uplinks past the next tier": network.tier[network.upper[link]]
            == network.tier[node] + 1,
            "upper switches that do not follow each other, or not with equally many links": (
                network.upper[link] == self._lowest[node] + place // wide
            )
            & (network.parallel[link] == place % wide + 1),
        }
        for rule, kept in rules.items():
            if not kept.all():
                return f"{network.node_names[node[np.argmin(kept)]]} has {rule}"
        for nodes in (self.leaves, self.spines if len(self.tops) else self.spines[:0]):
            if len(set(self.uplinks[nodes].tolist())) > 1:
                return f"not every {network.roles[nodes[0]]} has equally many uplinks"
        if len(self.tops):
            asn = network.asn[network.upper[link]]
            apart = (asn != network.asn[self._lowest[node]]) & (network.tier[node] == 1)
            if apart.any():
                return f"switches above {network.node_names[node[np.argmax(apart)]]} differ in ASN"
        return self._irregular_homes()

    def _irregular_homes(self) -> str | None:
        """What is not regular where two switches share two-port NICs, if anything."""
        homes = self.network.home_leaves
        if homes.shape[1] == 1:
            return None
        if homes.shape[1] > 2:
            return "a NIC has more than two ports"
        first, second = homes[homes[:, 1] != NONE].T
        lowest, highest = self.above(first)
        lowest_of_second, _ = self.above(second)
        beside = (lowest_of_second == lowest) | (lowest_of_second == highest + 1)
        apart = (second != first + 1) | ~beside
        if apart.any():
            return (
                f"{self.network.node_names[first[np.argmax(apart)]]} and the other switch of its "
                "NICs, or the switches above them, do not follow each other"
            )
        return None

    def climbs(self, tier: int) -> int:
        """Uplinks per switch of a tier."""
        nodes = (self.leaves, self.spines)[tier - 1]
        return int(self.uplinks[nodes[0]]) if len(nodes) else 0

    def above(self, nodes: Ints) -> tuple[Ints, Ints]:
        """The lowest and the highest number among the switches above each switch."""
        lowest = self._lowest[nodes]
        return lowest, lowest + self.uplinks[nodes] // self._pair[nodes] - 1

    def down_to(self, link: Ints) -> Ints:
        """The slot of each link's send down."""
        return self._down_slot[link]

    def between(self, upper: Ints, lower: Ints) -> tuple[Ints, Ints]:
        """The links from a switch up to another: the first, and how many, if any."""
        width = self._pair[lower]
        step = upper - self._lowest[lower]
        wired = (step >= 0) & (step * width < self.uplinks[lower])
        first = np.where(wired, self.first_up[lower] + step * width, 0)
        return first, np.where(wired, width, 0)

    def range_down(self, upper: Ints, lowest: Ints, highest: Ints) -> tuple[Ints, Ints]:
        """The slots from switches down to their neighbours from `lowest` to `highest`: the first,
        and how many."""
        base = upper.astype(np.int64) * self.network.nodes
        begin = np.searchsorted(self._down_key, base + lowest)
        end = np.searchsorted(self._down_key, base + highest, side="right")
        start = begin + len(self._down_key)
        return start.astype(np.int32), (end - begin).astype(np.int32)
