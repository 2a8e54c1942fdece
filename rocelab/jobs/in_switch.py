"""Sends of a collective that the switches of NVLink domains reduce and copy (NVLink SHARP).

A rank of a domain of g sends the switch its buffer once and gets its g-th part of the sum, then
sends that part of the result once and gets all parts: S + S/g bytes each way for an AllReduce of S,
where a ring among them takes 2 (g - 1)/g S (Klenk et al. 2020, `An in-network architecture for
accelerating shared-memory multiprocessor collectives`). Between domains each rail has two binary
trees, for half of its part each. Reduction, trees and copies overlap, as NCCL pipelines them.

What a rank sends the switch stands as sent to the next rank of its domain: each has the same way to
the switch and back, and other ranks do not matter.
"""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import NONE, Bools, Longs
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.patterns.building import parent_of
from rocelab.jobs.workload import Sends


def in_switch(pattern: Pattern, ranks: int, size_bytes: int, group: int) -> Sends:
    """The sends of a collective among domains of `group` consecutive ranks: bytes per pair, those
    of the switch and those of the trees."""
    parts = _divided(size_bytes, group)
    # Of a gather each rank gets all, of a scatter it gives all: the other way has a part.
    both = parts if pattern is Pattern.ALLREDUCE else np.zeros_like(parts)
    local = size_bytes + both
    first = np.arange(0, ranks, group)[:, None]
    place = np.arange(group)
    source, target = first + place, first + (place + 1) % group
    columns = [(source.ravel(), target.ravel(), np.tile(local, len(first)))]
    is_way = [np.arange(ranks) < 1]
    domains, depth = len(first), 0
    if domains > 1:
        up = np.array([parent_of(position, domains) for position in range(1, domains)])
        depth = _depth(up)
        for tree, half in enumerate(_divided(parts, 2).T):
            numbers = np.arange(domains)
            order = numbers if not tree else numbers[::-1] if domains % 2 == 0 else (numbers + 1)
            order = order % domains
            child, parent = order[1:, None] * group + place, order[up][:, None] * group + place
            sizes = np.broadcast_to(half, child.shape).ravel()
            for ends in ((child, parent), (parent, child)):
                columns.append((ends[0].ravel(), ends[1].ravel(), sizes))
                lowest = np.isin(np.arange(1, domains), 2 ** np.arange(depth + 1))
                is_way.append((lowest[:, None] & (place == 0)).ravel() & (tree == 0))
    sources, targets, loads = (np.concatenate(column) for column in zip(*columns, strict=True))
    way = np.concatenate(is_way)
    return _summed(ranks, sources, targets, loads, way, 2 * depth + 1)


def _summed(
    ranks: int, source: Longs, target: Longs, sizes: Longs, way: Bools, rounds: int
) -> Sends:
    """One send a pair; those on the longest way are a chain of `rounds`."""
    pairs, place = np.unique(source * ranks + target, return_inverse=True)
    total, on_way = np.zeros(len(pairs), np.int64), np.zeros(len(pairs), bool)
    np.add.at(total, place, sizes)
    np.logical_or.at(on_way, place, way)
    sent = np.flatnonzero(total)
    pairs, chain = pairs[sent], np.where(on_way[sent], 0, NONE).astype(np.int32)
    ends = (pairs // ranks).astype(np.int32), (pairs % ranks).astype(np.int32)
    return Sends(*ends, total[sent], rounds, chain=chain)


def _divided(sizes: int | Longs, parts: int) -> Longs:
    """Each size in parts that differ by a byte at most: sizes x parts."""
    bounds = np.asarray(sizes)[..., None] * np.arange(parts + 1) // parts
    return np.diff(bounds)


def _depth(parents: Longs) -> int:
    """The most edges from a position to the root, of which position p has parents[p - 1]."""
    depth, at = 0, np.append(0, parents)
    above = at.copy()
    while at.any():
        depth, at = depth + 1, above[at]
    return depth + 1 if len(parents) else 0
