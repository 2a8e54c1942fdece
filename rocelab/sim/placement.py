"""Places the ranks of a job on NICs, in a network of any size and beside other jobs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rocelab.base.arrays import Bools, Ints
from rocelab.jobs.placement import Cut, Placement, choose
from rocelab.routes.arrays.network import Network

Taken = Bools


def place_ranks(
    network: Network,
    ranks: int,
    how: Placement | Sequence[str],
    seed: int = 0,
    taken: Taken | None = None,
) -> Ints:
    """The NIC of each rank, without those that are `taken` (n), as `choose` chooses them; raises as
    it does."""
    occupied = None if taken is None else taken.tolist()
    return np.array(choose(network.nic_columns, ranks, how, seed, occupied), np.int32)


def ring_cut(network: Network, places: Ints) -> Cut:
    """The links that a ring of ranks on these NICs crosses."""
    return network.nic_columns.cut(places.tolist())


def ring_group(network: Network, places: Ints) -> int:
    """How many consecutive ranks form a group of a hierarchical collective. Raises InputError if
    groups differ in size."""
    return network.nic_columns.group_size(places.tolist())
