"""Chooses each flow's next hop at each switch: the lab's schemes and hash models over arrays.

Given flows at switches and the groups there, returns a place in each group. For schemes whose
choices follow from a packet's headers it is that of `rocelab.predict.choice`. The others:

resilient: buckets as the kernel fills them for a new group, then as they are right after the lost
members left, one after the other in the group's order, with no bucket in use. spray and flowlet are
fluid limits: each switch, or the leaf alone, divides a flow evenly over its group.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from rocelab.arrays import Ints, Words
from rocelab.forwarding.asic import crc_hashes
from rocelab.forwarding.bulk import e_ecmp_hashes, multipath_hashes, select_all
from rocelab.forwarding.flows import Flows as Columns
from rocelab.forwarding.flows import Indices, columns_v4
from rocelab.forwarding.resilient import filled, without
from rocelab.forwarding.steering import ROCE_PORT, steering_hash
from rocelab.predict.choice import CRCS, Model
from rocelab.sim.fabric.flows import Flows
from rocelab.sim.fabric.ladder import Ladder
from rocelab.sim.fabric.routes import Mask, NextHops
from rocelab.spec.schemes import ResilientScheme, SchemeSpec


def divides(scheme: SchemeSpec, model: Model) -> bool:
    """Whether flows have parts."""
    return model is Model.KERNEL and scheme.kind in ("spray", "flowlet")


class Choice:
    """The choices of flows. A model other than the kernel's replaces the scheme."""

    def __init__(self, ladder: Ladder, flows: Flows, scheme: SchemeSpec, model: Model) -> None:
        self._network = ladder.network
        self._uplinks = ladder.climbs(1)
        self._flows = flows
        self._scheme = scheme
        self._model = model
        self._source = self._network.nic_address[flows.source]
        self._destination = self._network.nic_address[flows.destination]

    @cached_property
    def _columns(self) -> Columns:
        return columns_v4(self._source, self._destination, self._flows.sport, ROCE_PORT)

    def divided(self, at: Ints) -> Mask:
        """Whether switches divide flows over their groups."""
        if not divides(self._scheme, self._model):
            return np.zeros(len(at), np.bool_)
        here: Mask = (self._network.tier[at] == 1) | (self._scheme.kind == "spray")
        return here

    def places(self, at: Ints, which: Indices, hops: NextHops) -> Ints:
        """The place in its healthy group that each of the flows `which` takes at the switch `at`.

        Raises InputError for a hash seed of 0: the kernel's own seed is then unknown.
        """
        (free,) = np.nonzero((hops.count > 1) & ~self.divided(at))
        if not len(free):
            return hops.place(np.zeros(len(at), np.int32))
        if isinstance(self._scheme, ResilientScheme) and self._model is Model.KERNEL:
            place = hops.place(np.zeros(len(at), np.int32))
            hashes = self._kernel_hashes(at[free], which[free])
            place[free] = _of_buckets(hashes, hops.take(free), self._scheme.buckets)
            return place
        option = np.zeros(len(at), np.int32)
        option[free] = self._options(at[free], which[free], hops.count[free])
        return hops.place(option)

    def _options(self, at: Ints, which: Indices, count: Ints) -> Ints:
        if self._model is not Model.KERNEL:
            seeds = self._network.hash_seed[at]
            found = crc_hashes(self._columns.part(which), seeds, crc=CRCS[self._model])
            return (found % count.astype(np.uint32)).astype(np.int32)
        hashes = self._hashes(at, which)
        option = np.empty(len(at), np.int32)
        for width in np.flatnonzero(np.bincount(count)).tolist():
            same = count == width
            option[same] = select_all(hashes[same], (1,) * width)
        return option

    def _hashes(self, at: Ints, which: Indices) -> Words:
        """31-bit hashes; the kernel takes the upper bits of a hash that steering sets."""
        match self._scheme.kind:
            case "e-ecmp":
                return self._with_qp(at, which) >> np.uint32(1)
            case "path-pinning":
                return self._pinned(at, which)
            case _:
                return self._kernel_hashes(at, which)

    def _kernel_hashes(self, at: Ints, which: Indices) -> Words:
        hashing, seeds = self._network.spec.hashing, self._network.hash_seed[at]
        return multipath_hashes(self._columns.part(which), seeds, hashing.policy, hashing.fields)

    def _with_qp(self, at: Ints, which: Indices) -> Words:
        flows = self._flows
        columns = (self._source, self._destination, flows.sport, flows.dest_qp)
        source, destination, sport, dest_qp = (each[which].astype(np.uint64) for each in columns)
        seeds = self._network.hash_seed[at].astype(np.uint64)
        return e_ecmp_hashes(source, destination, sport, dest_qp, seeds)

    def _pinned(self, at: Ints, which: Indices) -> Words:
        """At leaves other than the destination's, the middle of an uplink's range of hashes
        (`rocelab.forwarding.steering.planned_pins`)."""
        network, nic = self._network, self._flows.destination[which]
        own = (network.home_leaves[network.nic_home[nic]] == at[:, None]).any(axis=1)
        pinned = (network.tier[at] == 1) & ~own
        hashes = np.empty(len(at), np.uint32)
        hashes[~pinned] = self._kernel_hashes(at[~pinned], which[~pinned])
        hashes[pinned] = self._pins[self._slot[nic[pinned]] % self._uplinks]
        return hashes

    @cached_property
    def _pins(self) -> Words:
        """The hash of each uplink."""
        equal = (1,) * self._uplinks
        return np.array([steering_hash(i, equal) >> 1 for i in range(len(equal))], np.uint32)

    @cached_property
    def _slot(self) -> Ints:
        """The place of each NIC among those of its home."""
        home = self._network.nic_home
        order = np.argsort(home, kind="stable")
        begin = np.cumsum(np.bincount(home)) - np.bincount(home)
        slot = np.empty(len(home), np.int32)
        slot[order] = np.arange(len(home)) - begin[home[order]]
        return slot


def _of_buckets(hashes: Words, hops: NextHops, buckets: int) -> Ints:
    """The places in their groups that resilient groups give to hashes."""
    bucket = (hashes % np.uint32(buckets)).astype(np.intp)
    place = np.empty(len(hashes), np.int32)
    for rows in hops.alike():
        one = int(rows[0])
        place[rows] = _table(int(hops.width[one]), hops.lost(one), buckets)[bucket[rows]]
    return place


@lru_cache(maxsize=4096)
def _table(width: int, lost: tuple[int, ...], buckets: int) -> Ints:
    """The member in each bucket of a group of `width` that has lost some, one after the other."""
    members = list(range(width))
    table = filled([None] * buckets, [1] * width)
    for member in lost:
        place = members.index(member)
        after = without(table, [1] * len(members), place)
        table = tuple(each - (each > place) for each in after)
        members.remove(member)
    return np.array(members, np.int32)[list(table)]
