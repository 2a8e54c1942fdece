"""Chooses each flow's next hop at each switch: the lab's schemes and hash models over arrays.

Given flows at switches and the groups there, returns a place in each group. For schemes whose
choices follow from a packet's headers it is that of `rocelab.routes.path`. The others:

resilient: buckets as the kernel fills them for a new group, then as they are right after the lost
members left, one after the other in the group's order, with no bucket in use. spray and flowlet are
fluid limits: each switch, or the leaf alone, divides a flow evenly over its group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np

from rocelab.base.arrays import Ints, Longs, Words
from rocelab.labfile.schemes.base import Headers, Treatment
from rocelab.labfile.schemes.resilient import ResilientScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.routes.arrays.flows import Flows
from rocelab.routes.arrays.routes import Groups, Mask, NextHops
from rocelab.routes.asic import CRCS, crc_hashes
from rocelab.routes.bulk import (
    address_words,
    field_hashes,
    multipath_hashes,
    outer_columns,
    select_all,
    select_buckets,
)
from rocelab.routes.flows import HeaderColumns as Columns
from rocelab.routes.flows import Indices, roce_columns
from rocelab.routes.models import Model
from rocelab.routes.resilient import filled, without
from rocelab.routes.steering import EntryKey, steering_hash

DRAWN = (Treatment.FLOWLET, Treatment.SPRAY)


def divides(scheme: SchemeSpec, model: Model) -> bool:
    """Whether flows have parts."""
    return model is Model.KERNEL and scheme.divides_flows


class Choice:
    """The choices of flows. A model other than the kernel's replaces the scheme. `entries`: of
    scheme te."""

    def __init__(
        self,
        routes: Groups,
        flows: Flows,
        scheme: SchemeSpec,
        model: Model,
        entries: Mapping[EntryKey, int],
    ) -> None:
        self._routes = routes
        self._network = routes.network
        self._flows = flows
        self._scheme = scheme
        self._leaf, self._upper = (scheme.treatment(is_leaf=is_leaf) for is_leaf in (True, False))
        self._model = model
        self._entries = entries

    @cached_property
    def _columns(self) -> Columns:
        network, flows = self._network, self._flows
        addresses, tenants = network.nic_address, network.tenants
        source, destination = flows.source, flows.destination
        columns = roce_columns(addresses[source], addresses[destination], flows.sport)
        if tenants is None:
            return columns
        (inside,) = np.nonzero(tenants.tunnelled(source, destination, network.nic_leaf))
        source, destination = source[inside], destination[inside]
        headers = Headers(
            self._words[source].astype(np.uint64),
            self._words[destination].astype(np.uint64),
            flows.sport[inside].astype(np.uint64),
            np.zeros(len(inside), np.uint64),
        )
        leaf = tenants.leaf_address
        outer = outer_columns(headers, leaf[source], leaf[destination])
        return columns.replaced(inside, outer)

    def divided(self, at: Ints) -> Mask:
        """Whether switches divide flows over their groups."""
        if not divides(self._scheme, self._model):
            return np.zeros(len(at), np.bool_)
        here: Mask = (self._network.tier[at] == 1) | (self._upper in DRAWN)
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
            place[free] = _bucket_places(hashes, hops.take(free), self._scheme.buckets)
            return place
        option = np.zeros(len(at), np.int32)
        option[free] = self._options(at[free], which[free], hops.take(free))
        return hops.place(option)

    def _options(self, at: Ints, which: Indices, hops: NextHops) -> Ints:
        hashes, weights = self._hashes(at, which), self._routes.weights
        option = np.empty(len(at), np.int32)
        alike = hops.count if weights is None else hops.start
        for treatment in np.flatnonzero(np.bincount(alike)).tolist():
            same = alike == treatment
            width = int(hops.count[np.argmax(same)])
            group = (
                [1] * width if weights is None else weights[treatment : treatment + width].tolist()
            )
            option[same] = self._selected(hashes[same], group)
        return option

    def _selected(self, hashes: Words, weights: Sequence[int]) -> Indices:
        """The member of a group that takes each hash: by threshold as Linux has it, or by modulo
        over a table that has a member as often as its weight says."""
        if self._model is Model.KERNEL:
            return select_all(hashes, weights)
        return select_buckets(hashes, np.repeat(np.arange(len(weights)), weights).tolist())

    def _hashes(self, at: Ints, which: Indices) -> Words:
        """31-bit hashes, where the kernel takes the upper bits of a hash that steering sets; or an
        ASIC's CRCs."""
        if self._model is not Model.KERNEL:
            seeds = self._network.hash_seed[at]
            return crc_hashes(self._columns.part(which), seeds, crc=CRCS[self._model])
        at_leaf = self._network.tier[at] == 1
        if self._leaf is self._upper or at_leaf.all():
            return self._hashed(self._leaf, at, which)
        hashes = np.empty(len(at), np.uint32)
        for treatment, here in ((self._leaf, at_leaf), (self._upper, ~at_leaf)):
            hashes[here] = self._hashed(treatment, at[here], which[here])
        return hashes

    def _hashed(self, treatment: Treatment, at: Ints, which: Indices) -> Words:
        match treatment:
            case Treatment.HASH | Treatment.FUNCTION:
                return self._header_hashes(treatment, at, which) >> np.uint32(1)
            case Treatment.PINS:
                return self._pinned(at, which)
            case Treatment.ENTRIES if self._entries:
                return self._placed(at, which)
            case _:
                return self._kernel_hashes(at, which)

    def _kernel_hashes(self, at: Ints, which: Indices) -> Words:
        hashing, seeds = self._network.spec.hashing, self._network.hash_seed[at]
        return multipath_hashes(self._columns.part(which), seeds, hashing.policy, hashing.fields)

    def _header_hashes(self, treatment: Treatment, at: Ints, which: Indices) -> Words:
        """32-bit hashes of the fields that the scheme names, by our function or its own."""
        flows, words = self._flows, self._words
        ends = (words[flows.source], words[flows.destination])
        columns = (*ends, flows.sport, flows.dest_qp)
        headers = Headers(*(column[which].astype(np.uint64) for column in columns))
        seeds = self._network.hash_seed[at].astype(np.uint64)
        if treatment is Treatment.FUNCTION:
            return self._scheme.hashes(headers, seeds)
        return field_hashes(headers, seeds, self._scheme.hashed)

    @cached_property
    def _words(self) -> Words:
        """What is hashed of each NIC's address."""
        return address_words(self._network.nic_address)

    def _pinned(self, at: Ints, which: Indices) -> Words:
        """At leaves, the middle of an uplink's range of hashes, but for the destination's
        (`rocelab.routes.steering.planned_pins`)."""
        network, nic = self._network, self._flows.destination[which]
        is_own = (network.home_leaves[network.nic_home[nic]] == at[:, None]).any(axis=1)
        pinned = (network.tier[at] == 1) & ~is_own & (self._uplinks[at] > 0)
        hashes = np.empty(len(at), np.uint32)
        hashes[~pinned] = self._kernel_hashes(at[~pinned], which[~pinned])
        uplinks = self._uplinks[at[pinned]]
        hashes[pinned] = self._pins[uplinks, self._slot[nic[pinned]] % uplinks]
        return hashes

    def _placed(self, at: Ints, which: Indices) -> Words:
        """What te's entries say, and the kernel's own hash where there is none."""
        flows, names, ip = self._flows, self._network.node_names, self._network.ip
        choices = [
            self._entries.get(EntryKey(names[node], ip(source), ip(destination), sport))
            for node, source, destination, sport in zip(
                at.tolist(),
                flows.source[which].tolist(),
                flows.destination[which].tolist(),
                flows.sport[which].tolist(),
                strict=True,
            )
        ]
        mask = np.array([choice is None for choice in choices], np.bool_)
        hashes = np.array([choice or 0 for choice in choices], np.uint32) >> np.uint32(1)
        hashes[mask] = self._kernel_hashes(at[mask], which[mask])
        return hashes

    @cached_property
    def _uplinks(self) -> Longs:
        """The number of uplinks of each switch, N; without tiers, of links of which it is the lower
        end."""
        return np.bincount(self._network.lower, minlength=self._network.nodes)

    @cached_property
    def _pins(self) -> Words:
        """The hash of each uplink, by how many a switch has."""
        leaves = self._network.tier == 1
        widths: list[int] = np.unique(self._uplinks[leaves]).tolist()
        pins = np.zeros((max(widths) + 1, max(widths)), np.uint32)
        for width in widths:
            equal = (1,) * width
            pins[width, :width] = [steering_hash(i, equal) >> 1 for i in range(width)]
        return pins

    @cached_property
    def _slot(self) -> Ints:
        """The place of each NIC's first port among those of its switch."""
        network = self._network
        (links,) = np.nonzero(network.tier[network.lower] == 0)
        leaf = network.upper[links]
        order = np.argsort(leaf, kind="stable")
        begin = np.cumsum(np.bincount(leaf)) - np.bincount(leaf)
        slot = np.zeros(network.links, np.int32)
        slot[links[order]] = np.arange(len(links)) - begin[leaf[order]]
        return slot[network.nic_links[:, 0]]


def _bucket_places(hashes: Words, hops: NextHops, buckets: int) -> Ints:
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
        table = tuple(hop - (hop > place) for hop in after)
        members.remove(member)
    return np.array(members, np.int32)[list(table)]
