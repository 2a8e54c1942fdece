"""What the engines of traffic engineering work on: routes, flows, placements and working arrays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rocelab.base.arrays import NONE, Floats, Ints, Longs

NOTHING = -1.0
"""The use of a send that is not there."""

MOST_IN_VAIN = 1000
"""The search for moves stops after this many without a better placement."""

LONGEST_STAY = 10
"""Moves for which a flow that has moved stays, at most."""


class Offer(NamedTuple):
    """The routes of N nodes to H classes of destinations."""

    group: Ints
    """N x H, NONE for no route; sends[start[g]:start[g + 1]] are the choices of a group in the
    kernel's order."""
    start: Longs
    sends: Ints
    receiver: Ints
    """Of each send; sends without capacity are not used."""
    capacity_bps: Floats
    """Of each send; sends without capacity are not used."""


class FlowRequests(NamedTuple):
    """F flows."""

    ingress: Ints
    """a node."""
    home: Ints
    """a class of destinations as in `Routes`, F."""
    leaves: Ints
    """The nodes that reach the destination's NIC, F x p, padded with NONE."""
    rate_bps: Floats
    """F."""


class Scratch(NamedTuple):
    """Working arrays for one search at a time."""

    seen: Longs
    """N."""
    hop: Ints
    """N."""
    queue: Ints
    """N."""
    used: Floats
    """N x most hops of a path."""


class Placed(NamedTuple):
    """The sends between switches of F flows."""

    hops: Ints
    """How many, F, NONE without a path."""
    sends: Ints
    """F x most hops."""


def scratch(nodes: int, most_hops: int) -> Scratch:
    """Fresh working arrays for searches among `nodes` nodes."""
    return Scratch(
        np.full(nodes, NONE, np.int64),
        np.full(nodes, NONE, np.int32),
        np.zeros(nodes, np.int32),
        np.full((nodes, most_hops), NOTHING),
    )


class Lists(NamedTuple):
    """The flows on each send, linked: entry f * most hops + k is hop k of flow f."""

    head: Longs
    """The first entry of each send."""
    after: Longs
    """The neighbours of each entry, or NONE."""
    before: Longs
    """The neighbours of each entry, or NONE."""


class Work(NamedTuple):
    """Working arrays for one run of `move_off` with F flows."""

    lists: Lists
    load_bps: Floats
    """Of each send."""
    path: Ints
    """Most hops."""
    new_path: Ints
    """Most hops."""
    before_bps: Floats
    """Most hops."""
    moved_at: Longs
    """F."""
    moved: Longs
    """MOST_IN_VAIN."""
    left_path: Ints
    """MOST_IN_VAIN x most hops."""


def fresh_work(sends: int, flows: int, most: int) -> Work:
    """Working arrays for `flows` flows with at most `most` hops over `sends` sends."""
    lists = Lists(
        np.full(sends, NONE, np.int64),
        np.full(flows * most, NONE, np.int64),
        np.full(flows * most, NONE, np.int64),
    )
    return Work(
        lists,
        np.zeros(sends),
        np.full(most, NONE, np.int32),
        np.full(most, NONE, np.int32),
        np.zeros(most),
        np.full(flows, -LONGEST_STAY, np.int64),
        np.zeros(MOST_IN_VAIN, np.int64),
        np.zeros((MOST_IN_VAIN, most), np.int32),
    )


def sums(which: Longs | Ints, values: Floats, count: int) -> Floats:
    """The sum of the values of each of `count` groups."""
    summed: Floats = np.bincount(which, values, count).astype(np.float64)
    return summed
