"""Sends of a collective that the switches of NVLink domains reduce and copy (NVLink SHARP).

A rank of a domain of g sends the switch its buffer once and gets its g-th part of the sum, then
sends that part of the result once and gets all parts: S + S/g bytes each way for an AllReduce of S,
where a ring among them takes 2 (g - 1)/g S (Klenk et al. 2020, `An in-network architecture for
accelerating shared-memory multiprocessor collectives`). Between domains each rail has two binary
trees, for half of its part each. Reduction, trees and copies overlap, as NCCL pipelines them.

What a rank sends the switch stands as sent to the next rank of its domain: each has the same way to
the switch and back, and other ranks do not matter. `in_network` is for switches of the network.
"""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import NONE
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.summing import divided, summed, tree_of
from rocelab.jobs.workload import Sends


def in_network(ranks: int, size_bytes: int, group: int) -> Sends:
    """The sends of an AllReduce that the network's switches reduce (SHARP; Graham et al. 2016,
    `Scalable hierarchical aggregation protocol`), as NCCL's CollNet has it: each rank of a domain
    of `group` consecutive ranks reduces a part of what all of them send it, its NIC sends that up
    its rail once and gets the sum once, and it sends the sum to all of its domain.

    What a NIC sends the switches stands as sent to the next domain on the rail: a leaf whose
    servers follow each other sends up and gets each part once, as one that reduces does.
    """
    parts = divided(np.array(size_bytes), group)
    first, place = np.arange(0, ranks, group), np.arange(group)
    shape = (len(first), group, group)
    is_other = np.broadcast_to(place[:, None] != place, shape)
    ends = first[:, None, None] + place[:, None], first[:, None, None] + place
    source, target = (np.broadcast_to(end, shape)[is_other] for end in ends)
    both = np.broadcast_to(parts[:, None] + parts, shape)[is_other]
    leaving = first[:, None] + place
    arriving = np.roll(leaving, -1, axis=0)
    over = np.broadcast_to(parts, leaving.shape)
    size = np.concatenate((both, over.ravel()))
    # The longest way is into a rank, to the top of the switches and back, and out of the rank.
    chain = np.full(len(size), NONE, np.int32)
    hops = np.zeros(len(size), np.int64)
    way = [0, len(size) - group] if group > 1 else [len(size) - group]
    chain[way] = 0
    hops[way] = [2, 1] if group > 1 else [1]
    sent = np.flatnonzero(size)
    return Sends(
        np.concatenate((source, leaving.ravel())).astype(np.int32)[sent],
        np.concatenate((target, arriving.ravel())).astype(np.int32)[sent],
        size[sent],
        3 if group > 1 else 1,
        None,
        chain[sent],
        hops[sent],
    )


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
