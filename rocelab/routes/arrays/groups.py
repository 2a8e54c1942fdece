"""The groups of all switches for all destinations as one table, for searches over paths.

A `GroupTable` has a cell for each node and class of destinations, 50 MB for 32,256 NICs in racks of
16. To route flows, ask `PlannedGroups` for the groups on their paths instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import NONE, Ints
from rocelab.routes.arrays.routes import PlannedGroups

PIECE = 2**16
"""Cells computed at a time."""


@dataclass(frozen=True, eq=False)
class GroupTable:
    """The groups of next hops of all nodes, by column."""

    group: Ints
    """Of each node and class, NONE if the node has no route or the class is its own, N x classes.
    The sends of group g are sends[start[g]:start[g + 1]], in the kernel's order."""
    start: npt.NDArray[np.int64]
    sends: Ints


def group_table(routes: PlannedGroups) -> GroupTable:
    """The groups of every switch for every class that has NICs."""
    network = routes.network
    classes, nic_of = np.unique(routes.nic_class, return_index=True)
    nic_of, classes = nic_of[classes != NONE].astype(np.int32), classes[classes != NONE]
    group = np.full((network.nodes, len(routes.origins)), NONE, np.int32)
    switches = np.flatnonzero(network.tier).astype(np.int32)
    numbers: dict[tuple[int, ...], int] = {}
    some = max(1, PIECE // max(1, len(classes)))
    for begin in range(0, len(switches) if len(classes) else 0, some):
        here = switches[begin : begin + some]
        hops = routes.next_hops(np.repeat(here, len(classes)), np.tile(nic_of, len(here)))
        cells = np.full(len(hops.start), NONE, np.int32)
        for rows in hops.alike(hops.start):
            sends = routes.members(hops, int(rows[0]))
            if len(sends):
                cells[rows] = numbers.setdefault(tuple(sends.tolist()), len(numbers))
        group[np.ix_(here, classes)] = cells.reshape(len(here), len(classes))
    for origins in routes.origins.T:
        (columns,) = np.nonzero(origins != NONE)
        group[origins[columns], columns] = NONE
    widths = np.array([len(sends) for sends in numbers], np.int64)
    members = [send for sends in numbers for send in sends]
    start = np.concatenate(([0], np.cumsum(widths)))
    return GroupTable(group, start.astype(np.int64), np.array(members, np.int32))
