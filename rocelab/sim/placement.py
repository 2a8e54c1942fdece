"""Places the ranks of a job on NICs, in a network of any size and beside other jobs.

Without other jobs the NICs are those of `rocelab.jobs.placement.place` in the `Fabric` of the same
spec.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from rocelab.arrays import Ints
from rocelab.errors import InputError
from rocelab.jobs.placement import (
    Cut,
    Placement,
    check_nic,
    even_group,
    no_room,
    no_server,
    one_leaf,
    references,
)
from rocelab.sim.fabric.network import Network

Longs = npt.NDArray[np.int64]
Taken = npt.NDArray[np.bool_]


def place_ranks(
    network: Network,
    ranks: int,
    how: Placement | Sequence[str],
    seed: int = 0,
    taken: Taken | None = None,
) -> Ints:
    """The NIC of each rank, each NIC used at most once, without those that are `taken` (n).

    contiguous, fragmented and random are `rocelab.jobs.placement.place` among the free NICs.
    topology-aware has the least cut between zones and consecutive ranks near each other (Gangidi et
    al., SIGCOMM 2024, `RDMA over Ethernet for Distributed AI Training at Meta Scale`). A job that
    fits into one zone gets the zone where it needs the fewest leaves, the fullest of several. A
    larger job fills the emptiest zones, then places the remaining ranks by the same rule. In a zone
    it takes the emptiest leaves, and for its last ranks the fullest leaf with room for them. A job
    in one zone thus has the fewest possible leaves, and any job the fewest zones; a job in several
    zones has the fewest leaves in each, not always overall. Ranks then follow the fabric's order:
    zone by zone, leaf by leaf.

    Raises InputError for more ranks than free NICs, a fragmented placement on one leaf, and a list
    that is too short or long, repeats a NIC or names one that is taken or does not exist.
    """
    if not isinstance(how, Placement):
        return _listed(network, ranks, how, taken)
    free = np.ones(network.nics, bool) if taken is None else ~taken
    left = np.flatnonzero(free)
    if ranks > len(left):
        if taken is not None and taken.any():
            raise InputError(
                f"{ranks} ranks do not fit the {len(left)} NICs of {network.spec.name} that other "
                "jobs leave",
                hint="a rank needs a NIC of its own: take fewer ranks or jobs",
            )
        raise no_room(ranks, len(left), network.spec.name)
    if not ranks:
        return np.empty(0, np.int32)
    zone, leaf = _zones_and_leaves(network)
    match how:
        case Placement.CONTIGUOUS:
            chosen = left
        case Placement.TOPOLOGY_AWARE:
            chosen = _nearest(zone, leaf, left, ranks)
        case Placement.FRAGMENTED:
            if np.all(leaf[left] == leaf[left[0]]):
                raise one_leaf(network.spec.name)
            near = left[np.lexsort((leaf[left], zone[left]))]
            by_zone = near[np.lexsort((leaf[near], _place_within(leaf[near]), zone[near]))]
            chosen = by_zone[np.lexsort((zone[by_zone], _place_within(zone[by_zone])))]
        case Placement.RANDOM:
            near = left[np.lexsort((leaf[left], zone[left]))]
            rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
            chosen = near[rng.sample(range(len(near)), len(near))]
    return chosen[:ranks].astype(np.int32)


def ring_cut(network: Network, places: Ints) -> Cut:
    """The links that a ring of ranks on these NICs crosses (`rocelab.jobs.placement.cut`)."""
    home = network.nic_home[places]
    zone = network.zone[network.home_leaves[home, 0]]
    return Cut(
        leaves=int(np.count_nonzero(home != np.roll(home, 1))),
        zones=int(np.count_nonzero(zone != np.roll(zone, 1))),
    )


def ring_group(network: Network, places: Ints) -> int:
    """How many consecutive ranks form a group of a hierarchical collective
    (`rocelab.jobs.placement.group_size`). Raises InputError if groups differ in size."""
    leaves = network.home_leaves[network.nic_home[places], 0]
    return even_group(network.nic_server[places].tolist(), leaves.tolist())


def _zones_and_leaves(network: Network) -> tuple[Longs, Longs]:
    """The zone of each NIC and its leaf, or two leaves, n: both count in order of the NICs."""
    leaf = _by_appearance(network.nic_home)
    return _by_appearance(network.zone[network.home_leaves[network.nic_home, 0]]), leaf


def _by_appearance(values: Ints) -> Longs:
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse]


def _place_within(groups: Longs) -> Longs:
    """How many elements of its group precede each element; groups are contiguous."""
    begins = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    return np.arange(len(groups)) - np.repeat(begins, np.diff(begins, append=len(groups)))


def _nearest(zone: Longs, leaf: Longs, left: Longs, ranks: int) -> Longs:
    free = np.bincount(leaf[left], minlength=int(leaf.max()) + 1)
    zone_of = np.empty(len(free), np.int64)
    zone_of[leaf] = zone
    zones = [np.flatnonzero(zone_of == number) for number in range(int(zone.max()) + 1)]
    room = [int(free[leaves].sum()) for leaves in zones]
    take = np.zeros(len(free), np.int64)
    while ranks:
        fitting = [number for number, size in enumerate(room) if size >= ranks]
        if fitting:
            shares = {number: _fewest_leaves(free[zones[number]], ranks) for number in fitting}
            best = min(fitting, key=lambda number: (np.count_nonzero(shares[number]), room[number]))
            share = shares[best]
        else:
            best = int(np.argmax(room))
            share = free[zones[best]]
        take[zones[best]] = share
        ranks -= int(share.sum())
        room[best] = 0
    near = left[np.lexsort((leaf[left], zone[left]))]
    return near[_place_within(leaf[near]) < take[leaf[near]]]


def _fewest_leaves(free: Longs, ranks: int) -> Longs:
    """How many of `ranks` to put on each of the leaves of a zone that has room for all."""
    emptiest = np.argsort(-free, kind="stable")
    before = np.cumsum(free[emptiest]) - free[emptiest]
    last = int(np.searchsorted(before, ranks)) - 1
    take = np.zeros(len(free), np.int64)
    take[emptiest[:last]] = free[emptiest[:last]]
    rest = ranks - int(before[last])
    others = np.where((take == 0) & (free >= rest), free, np.iinfo(np.int64).max)
    take[np.argmin(others)] = rest
    return take


def _listed(network: Network, ranks: int, names: Sequence[str], taken: Taken | None) -> Ints:
    places = references(ranks, names)
    node_of = {name: number for number, name in enumerate(network.node_names)}
    servers, first, count = np.unique(network.nic_server, return_index=True, return_counts=True)
    nics_of = {
        int(server): (int(start), int(nics))
        for server, start, nics in zip(servers, first, count, strict=True)
    }
    chosen = np.empty(ranks, np.int32)
    for rank, place in enumerate(places):
        node = node_of.get(place.server, -1)
        if node not in nics_of:
            named = [network.node_names[server] for server in servers]
            raise no_server(place.server, node >= 0, named)
        start, nics = nics_of[node]
        check_nic(place, nics)
        chosen[rank] = start + place.nic - 1
        if taken is not None and taken[chosen[rank]]:
            raise InputError(
                f"NIC {place} belongs to another job", hint="list NICs that no other job has"
            )
    return chosen
