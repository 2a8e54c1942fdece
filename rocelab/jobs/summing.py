"""What merged sends of a collective are made of: parts of sizes, trees, sums by pairs of ranks."""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import NONE, Ints, Longs
from rocelab.jobs.patterns.building import parent_of
from rocelab.jobs.workload import Sends


def divided(sizes: Longs, parts: int) -> Longs:
    """Each size in parts that differ by a byte at most: sizes x parts."""
    bounds = sizes[..., None] * np.arange(parts + 1) // parts
    return np.diff(bounds)


def tree_of(positions: int) -> tuple[Longs, int, Longs]:
    """The parent of each position in `parent_of`'s tree, 0 for the root; the number of edges on the
    longest way to the root, that of position 1, and the positions below them."""
    parent = np.array([0, *(parent_of(at, positions) for at in range(1, positions))], np.int64)
    longest = 2 ** np.arange((positions - 1).bit_length())
    return parent, len(longest), longest


def summed(
    ranks: int, source: Ints, destination: Ints, load: Longs, rounds: int, chain: Ints
) -> Sends:
    """The sums of bytes and parts (`load`, ... x 2) per pair; a pair is in a chain if one of its
    sends is, and stands for as many of its hops as are."""
    load = np.broadcast_to(load, (*source.shape, 2)).reshape(-1, 2)
    pair, place = np.unique(
        source.reshape(-1).astype(np.int64) * ranks + destination.reshape(-1), return_inverse=True
    )
    total = np.zeros((len(pair), 2), np.int64)
    np.add.at(total, place, load)
    of_pair = np.full(len(pair), NONE, np.int32)
    np.maximum.at(of_pair, place.reshape(-1), chain.reshape(-1))
    hops = np.bincount(place.reshape(-1), chain.reshape(-1) != NONE, len(pair)).astype(np.int64)
    sent = total[:, 1] > 0
    pair, total, of_pair, hops = pair[sent], total[sent], of_pair[sent], hops[sent]
    return Sends(
        (pair // ranks).astype(np.int32),
        (pair % ranks).astype(np.int32),
        total[:, 0].copy(),
        rounds,
        total[:, 1].copy(),
        of_pair,
        hops,
    )
