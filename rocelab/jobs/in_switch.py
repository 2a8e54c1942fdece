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

from rocelab.base.arrays import NONE
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.summing import divided, summed, tree_of
from rocelab.jobs.workload import Sends


def in_switch(pattern: Pattern, ranks: int, size_bytes: int, group: int) -> Sends:
    """The sends of a collective among domains of `group` consecutive ranks: bytes per pair, those
    of the switch and those of the trees."""
    parts = divided(np.array(size_bytes), group)
    # Of a gather each rank gets all, of a scatter it gives all: the other way has a part.
    both = parts if pattern is Pattern.ALLREDUCE else np.zeros_like(parts)
    local = size_bytes + both
    first = np.arange(0, ranks, group)[:, None]
    place = np.arange(group)
    source, target = first + place, first + (place + 1) % group
    columns = [(source.ravel(), target.ravel(), np.tile(local, len(first)))]
    is_way = [np.arange(ranks) < 1]
    domains = len(first)
    up, depth, longest = tree_of(domains)
    if domains > 1:
        for tree, half in enumerate(divided(parts, 2).T):
            numbers = np.arange(domains)
            order = numbers if not tree else numbers[::-1] if domains % 2 == 0 else (numbers + 1)
            order = order % domains
            child, parent = order[1:, None] * group + place, order[up[1:]][:, None] * group + place
            sizes = np.broadcast_to(half, child.shape).ravel()
            for ends in ((child, parent), (parent, child)):
                columns.append((ends[0].ravel(), ends[1].ravel(), sizes))
                lowest = np.isin(np.arange(1, domains), longest)
                is_way.append((lowest[:, None] & (place == 0)).ravel() & (tree == 0))
    sources, targets, loads = (np.concatenate(column) for column in zip(*columns, strict=True))
    chain = np.where(np.concatenate(is_way), 0, NONE).astype(np.int32)
    load = np.stack((loads, loads > 0), axis=-1)
    return summed(ranks, sources, targets, load, 2 * depth + 1, chain)
