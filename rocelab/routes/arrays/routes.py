"""Which next hops BGP offers each switch for each NIC, on links that are up: routes at size.

`Routes` gives the ECMP groups of any switches and NICs, vectorised. The rules are those of
`rocelab.planning.routes.spread` (equal AS-path length, RFC 7938 section 6.1; a switch refuses paths
with its own ASN; leaves announce only their own prefixes). In a fabric of regular tiers an AS path
goes up and down again, or from a spine straight down, so one sweep up and one down find all paths.

NICs that the same leaves announce are a class: the NICs of a home. A NIC with two ports that has
lost one is in the class of the remaining leaf (Qian et al., "Alibaba HPN", SIGCOMM 2024, section
4.2: a /32 per port). Reachability is a set of classes, a bit each, per spine and top.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import NONE, Ints
from rocelab.routes.arrays.ladder import Ladder
from rocelab.routes.arrays.network import Network

Mask = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.uint64]

_WORD = 64
_ALL = np.uint64(2**64 - 1)


@dataclass(frozen=True, eq=False)
class NextHops:
    """The groups of m pairs of a switch and a NIC, as places in `Groups.slots`."""

    start: Ints
    """a group's range while all links are up, m."""
    width: Ints
    """a group's range while all links are up, m."""
    count: Ints
    """Remaining next hops, m, 0 for no route."""
    partial: npt.NDArray[np.intp]
    """The pairs that have lost next hops."""
    live: Mask
    """Which of their places remain, partial x most places."""

    def take(self, rows: npt.NDArray[np.intp]) -> NextHops:
        """The groups of some pairs, repeated as often as in `rows`."""
        hit, live = self.partial, self.live
        if len(hit):
            of_row = np.full(len(self.start), NONE, np.intp)
            of_row[hit] = np.arange(len(hit))
            partial = of_row[rows]
            (hit,) = np.nonzero(partial != NONE)
            live = live[partial[hit]]
        return NextHops(self.start[rows], self.width[rows], self.count[rows], hit, live)

    def place(self, option: Ints) -> Ints:
        """The place in its healthy group of each pair's option-th remaining next hop, m."""
        place = option.astype(np.int32)
        if len(self.partial):
            nth = np.cumsum(self.live, axis=1, dtype=np.int32)
            place[self.partial] = (nth <= option[self.partial, None]).sum(axis=1)
        return place

    def alike(self, *keys: Ints) -> list[npt.NDArray[np.intp]]:
        """The pairs grouped by equal width, equal lost members and equal `keys`."""
        lost = np.zeros(len(self.start), np.int32)
        if len(self.partial):
            packed = np.packbits(self.live, axis=1)
            rows = packed.view(np.dtype((np.void, packed.shape[1]))).reshape(-1)
            lost[self.partial] = 1 + np.unique(rows, return_inverse=True)[1]
        order = np.lexsort((lost, self.width, *keys))
        columns = [values[order] for values in (lost, self.width, *keys)]
        changed = np.any([np.diff(column, prepend=column[:1]) for column in columns], axis=0)
        return np.split(order, np.flatnonzero(changed)) if len(order) else []

    def lost(self, row: int) -> tuple[int, ...]:
        """The places that a group has lost."""
        (rows,) = np.nonzero(self.partial == row)
        gone = ~self.live[rows, : self.width[row]]
        return tuple(np.nonzero(gone)[1].tolist())


class Groups(Protocol):
    """The groups that flows meet at switches."""

    network: Network
    up: Mask
    """Links that carry packets, L. slots: sends, those of a group together. weights: of each slot,
    None where next hops are equal."""

    @property
    def slots(self) -> Ints: ...

    @property
    def weights(self) -> Ints | None: ...

    def next_hops(self, at: Ints, nic: Ints) -> NextHops:
        """The groups of switches `at` for `nic`, both m."""
        ...


class PlannedGroups(Groups, Protocol):
    """The groups of planned routes, by classes of destinations."""

    origins: Ints
    """The leaves that announce each class, classes x p, padded with NONE."""
    nic_class: Ints
    """n, NONE for a NIC that no leaf announces."""

    def members(self, hops: NextHops, row: int) -> Ints:
        """The sends of one of some groups, in the kernel's order."""
        ...


class Routes:
    """The routes of a network whose links `link_up` (L, all by default) are up, after BGP
    converged.

    origins: the leaves that announce each class, classes x p, padded with NONE. nic_class: n, NONE
    for a NIC that no leaf announces.
    """

    def __init__(self, network: Network, link_up: Mask | None = None) -> None:
        self.network = network
        self.ladder = Ladder(network)
        self.up = np.ones(network.links, np.bool_) if link_up is None else link_up
        self.origins, self.nic_class = classes_of(network, self.up)
        self._words = -(-len(self.origins) // _WORD)
        self._asn = self._asn_above_origins()
        by_origin = [self._above_origin(which, self.up) for which in range(self.origins.shape[1])]
        everywhere = np.ones(network.links, np.bool_)
        meant = _union([self._above_origin(which, everywhere) for which in range(len(by_origin))])
        lost = _union([self._above_origin(which, ~self.up) for which in range(len(by_origin))])
        self._near = _union(by_origin)
        """Classes that a spine or top reaches by going down only, spines and tops x words."""
        self._via_first = by_origin[0]
        """Classes reached by way of their first origin, if the two origins have spines of their
        own."""
        self._whole_down = ~lost
        """Classes whose group down has lost no link."""
        self._sweep_tops(meant)
        self._far = np.zeros_like(self._near)
        """Classes that a spine reaches by going up."""
        self._whole_up = [np.empty((0, 0), np.uint64)] * 2
        """The classes whose group is all uplinks, of leaves and of spines."""
        self._sweep_spines()
        self._sweep_leaves()
        self._set_ranges()

    @property
    def slots(self) -> Ints:
        return self.ladder.slots

    @property
    def weights(self) -> None:
        return None

    def next_hops(self, at: Ints, nic: Ints) -> NextHops:
        """The groups of switches `at`, of any tier, for `nic`, both m."""
        start, width = np.zeros(len(at), np.int32), np.zeros(len(at), np.int32)
        whole = np.ones(len(at), np.bool_)
        klass = self.nic_class[nic]
        tier = self.network.tier[at]
        for level, find in ((1, self._at_leaf), (2, self._at_spine), (3, self._at_top)):
            (rows,) = np.nonzero((tier == level) & (klass != NONE))
            if len(rows):
                start[rows], width[rows], whole[rows] = find(at[rows], nic[rows], klass[rows])
        (partial,) = np.nonzero(~whole)
        live = self._live(at[partial], klass[partial], start[partial], width[partial])
        count = width.copy()
        count[partial] = live.sum(axis=1)
        return NextHops(start, width, count, partial, live)

    def members(self, hops: NextHops, row: int) -> Ints:
        """The sends of one of some groups, in the kernel's order."""
        options = np.arange(hops.count[row], dtype=np.int32)
        place = hops.take(np.full(len(options), row, np.intp)).place(options)
        sends: Ints = self.slots[hops.start[row] + place]
        return sends

    def _asn_above_origins(self) -> npt.NDArray[np.int64]:
        """The ASN of the spines above each origin of a class; -1 for no origin."""
        lowest, _ = self.ladder.above(self.origins)
        return np.where(self.origins == NONE, -1, self.network.asn[lowest])

    def _above_origin(self, which: int, links: Mask) -> Bits:
        """For every spine, the classes whose origin `which` it reaches by one of `links`."""
        masks = np.zeros((len(self.ladder.spines) + len(self.ladder.tops), self._words), np.uint64)
        (klass,) = np.nonzero(self.origins[:, which] != NONE)
        step = np.arange(self.ladder.climbs(1), dtype=np.int32)
        link = self.ladder.first_up[self.origins[klass, which]][:, None] + step
        klass, link = np.repeat(klass, len(step)), link.reshape(-1)
        klass, link = klass[links[link]], link[links[link]]
        word = self.ladder.row[self.network.upper[link]].astype(np.intp) * self._words
        bit = np.uint64(1) << (klass % _WORD).astype(np.uint64)
        np.bitwise_or.at(masks.reshape(-1), word + klass // _WORD, bit)
        return masks

    def _sweep_tops(self, meant: Bits) -> None:
        """Propagate routes up to the tops. `meant`: classes that spines reach while all links are
        up."""
        ladder, tops = self.ladder, self.ladder.tops
        if not len(tops):
            return
        last = np.full(len(tops), self.network.nodes - 1, np.int32)
        start, width = ladder.range_down(tops, np.zeros_like(last), last)
        link = ladder.slots[start[0] : start[-1] + width[-1]] // 2
        spine = ladder.row[self.network.lower[link]]
        begins = start - start[0]
        here = slice(len(ladder.spines), None)
        alive = np.where(self.up[link], _ALL, np.uint64(0))[:, None]
        for table in (self._near, self._via_first):
            table[here] = np.bitwise_or.reduceat(table[spine] & alive, begins)
        kept = self._near[spine] & alive | ~meant[spine]
        self._whole_down[here] = np.bitwise_and.reduceat(kept, begins)

    def _sweep_spines(self) -> None:
        """Propagate routes down to the spines, for classes that they do not reach by going down."""
        ladder, spines = self.ladder, self.ladder.spines
        origin_masks = [self._classes_of_asn(which) for which in range(self.origins.shape[1])]
        rows = slice(0, len(spines))
        masks = np.zeros((len(spines), self._words), np.uint64)
        whole = np.full_like(masks, _ALL)
        for step in range(ladder.climbs(2)):
            link = ladder.first_up[spines] + step
            top = ladder.row[self.network.upper[link]]
            first = self._via_first[top]
            refused = first & origin_masks[0] | (
                ~first & origin_masks[1] if len(origin_masks) > 1 else np.uint64(0)
            )
            offered = self._near[top] & ~refused
            offered[~self.up[link]] = 0
            masks |= offered
            whole &= offered
        self._far[rows] = masks & ~self._near[rows]
        self._whole_up[1] = whole

    def _classes_of_asn(self, which: int) -> Bits:
        """For each spine, the classes whose origin `which` is below spines of its ASN."""
        asns, of_spine = np.unique(self.network.asn[self.ladder.spines], return_inverse=True)
        same = self._asn[:, which] == asns[:, None]
        padded = np.zeros((len(asns), self._words * _WORD), np.bool_)
        padded[:, : same.shape[1]] = same
        bits: Bits = np.packbits(padded, axis=1, bitorder="little").view("<u8")
        return bits[of_spine]

    def _sweep_leaves(self) -> None:
        ladder, leaves = self.ladder, self.ladder.leaves
        shape = (len(leaves), self._words)
        near, far, any_near = np.full(shape, _ALL), np.full(shape, _ALL), np.zeros(shape, np.uint64)
        for step in range(ladder.climbs(1)):
            link = ladder.first_up[leaves] + step
            spine = ladder.row[self.network.upper[link]]
            alive = np.where(self.up[link], _ALL, np.uint64(0))[:, None]
            offered = self._near[spine] & alive
            any_near |= offered
            near &= offered
            far &= self._far[spine] & alive
        self._whole_up[0] = near | ~any_near & far

    def _set_ranges(self) -> None:
        """Set the slots of each top that lead to the spines above a class's origins."""
        ladder = self.ladder
        lowest, _ = ladder.above(self.origins[:, 0])
        last = np.where(self.origins == NONE, self.origins[:, :1], self.origins)[:, -1]
        ends = np.column_stack((lowest, ladder.above(last)[1]))
        ends, self._range_of = np.unique(ends, axis=0, return_inverse=True)
        tops = np.repeat(ladder.tops, len(ends))
        bounds = [np.tile(end, len(ladder.tops)).astype(np.int32) for end in ends.T]
        shape = (len(ladder.tops), len(ends))
        start, width = ladder.range_down(tops, bounds[0], bounds[1])
        self._range_start, self._range_width = start.reshape(shape), width.reshape(shape)

    def _at_leaf(self, at: Ints, nic: Ints, klass: Ints) -> tuple[Ints, Ints, Mask]:
        """Groups at leaves: direct for a NIC below; empty for a NIC that the leaf announces without
        a link."""
        ladder = self.ladder
        start, width = ladder.first_up[at], ladder.uplinks[at]
        whole = _bit(self._whole_up[0], ladder.row[at], klass)
        is_origin = (self.origins[klass] == at[:, None]).any(axis=1)
        width = np.where(is_origin, 0, width)
        for port in range(self.network.nic_links.shape[1]):
            link = self.network.nic_links[nic, port]
            is_attached = (link != NONE) & (self.network.upper[link] == at) & self.up[link]
            start = np.where(is_attached, ladder.down_to(link), start)
            width = np.where(is_attached, 1, width)
        return start, width, whole | is_origin

    def _at_spine(self, at: Ints, nic: Ints, klass: Ints) -> tuple[Ints, Ints, Mask]:
        ladder, row = self.ladder, self.ladder.row[at]
        start, width = ladder.first_up[at], ladder.uplinks[at]
        whole = _bit(self._whole_up[1], row, klass)
        down = _bit(self._near, row, klass)
        below = np.zeros_like(width)
        for which in reversed(range(self.origins.shape[1])):
            leaf = self.origins[klass, which]
            link, count = ladder.between(at, leaf)
            count = np.where(leaf == NONE, 0, count)
            start = np.where(down & (count > 0), ladder.down_to(link), start)
            below += count
        whole = np.where(down, _bit(self._whole_down, row, klass), whole)
        return start, np.where(down, below, width), whole

    def _at_top(self, at: Ints, nic: Ints, klass: Ints) -> tuple[Ints, Ints, Mask]:
        row = self.ladder.row[at]
        cell = row - len(self.ladder.spines), self._range_of[klass]
        return self._range_start[cell], self._range_width[cell], _bit(self._whole_down, row, klass)

    def _live(self, at: Ints, klass: Ints, start: Ints, width: Ints) -> Mask:
        """Which places of groups are next hops, rows x most places."""
        place = np.arange(width.max(initial=0), dtype=np.int32)
        live = place < width[:, None]
        send = self.ladder.slots[np.where(live, start[:, None] + place, 0)]
        live &= self.up[send // 2]
        receiver, tier = self.network.receiver[send], self.network.tier[at]
        row = np.where(self.network.tier[receiver] > 1, self.ladder.row[receiver], 0)
        of = klass[:, None]
        near = _bit(self._near, row, of)
        leaf, up = tier == 1, send % 2 == 0
        straight = live & near
        live[leaf] &= _bit(self._far, row[leaf], of[leaf])
        straight_on = leaf & straight.any(axis=1)
        live[straight_on] = straight[straight_on]
        live[tier == 3] &= near[tier == 3]
        rising = (tier == 2)[:, None] & up
        live &= ~rising | near & ~self._refused(at, row, klass)
        return live

    def _refused(self, at: Ints, top_row: Ints, klass: Ints) -> Mask:
        """Whether a spine finds its own ASN in the paths that its tops announce."""
        first = _bit(self._via_first, top_row, klass[:, None])
        same = self._asn[klass] == self.network.asn[at][:, None]
        refused: Mask = np.where(first, same[:, :1], same[:, -1:])
        return refused


def classes_of(network: Network, up: Mask) -> tuple[Ints, Ints]:
    """The origins of each class, and the class of each NIC.

    A leaf announces its own single-port NICs whether their links are up or not.
    """
    links, home = network.nic_links, network.nic_home
    ports = links.shape[1]
    if ports == 1:
        return network.home_leaves, home
    wired = links != NONE
    alive = wired & up[links]
    missing = wired & ~alive
    which = missing @ (1 << np.arange(ports))
    changed = np.flatnonzero(which)
    keys, of_changed = np.unique(
        np.column_stack((home[changed], which[changed])), axis=0, return_inverse=True
    )
    klass = home.copy()
    klass[changed] = len(network.home_leaves) + of_changed
    klass[~alive.any(axis=1)] = NONE
    left = network.home_leaves[keys[:, 0]]
    left[(keys[:, 1:] >> np.arange(ports)) & 1 == 1] = NONE
    # The remaining leaf comes first.
    left = np.take_along_axis(left, np.argsort(left == NONE, axis=1, kind="stable"), axis=1)
    return np.concatenate((network.home_leaves, left)).astype(np.int32), klass


def _union(tables: list[Bits]) -> Bits:
    union: Bits = np.bitwise_or.reduce(tables)
    return union


def _bit(table: Bits, row: Ints, klass: Ints) -> Mask:
    """Whether each class is in its row's set."""
    shift = (klass % _WORD).astype(np.uint64)
    bits: Mask = (table[row, klass // _WORD] >> shift & np.uint64(1)).astype(np.bool_)
    return bits
