"""AllReduce: in rings, in two trees, or hierarchical."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rocelab.base.errors import InputError
from rocelab.jobs.patterns.base import Algorithm, Call, JobPattern, Send
from rocelab.jobs.patterns.building import (
    PIECE_BYTES,
    add,
    add_ring,
    chain,
    parent_of,
    pieces,
    rotated,
    split,
)


class AllReduce(JobPattern):
    """All ranks get the sum of all buffers.

    ring: Patarasuk and Yuan 2009, `Bandwidth optimal all-reduce algorithms`. tree: two binary
    trees, each for half of the data; no rank has children in both, but for the root of one of them
    if the number of ranks is odd (Sanders, Speck and Traeff 2009, `Two-tree algorithms for full
    bandwidth broadcast, reduction and scan`), in pieces of PIECE_BYTES; with groups a chain in
    each, and trees of their first ranks, as NCCL has it (src/graph/trees.cc). hierarchical: rings
    within groups of `group` ranks and, from group to group, a ring per member.
    """

    place = 0
    algorithms = frozenset(Algorithm) - {Algorithm.DIRECT, Algorithm.PAT, Algorithm.PXN}
    is_in_ring_order = True
    has_few_peers = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        match call.algorithm:
            case Algorithm.TREE:
                _allreduce_trees(sends, call)
            case Algorithm.HIERARCHICAL:
                if call.group is None:
                    raise InputError(
                        "a hierarchical AllReduce needs groups", hint="give the ranks of a group"
                    )
                _allreduce_hierarchical(sends, call.orders, call.size_bytes, call.group)
            case _:
                add_ring(sends, call.rings, call.size_bytes, lambda ring: ring[1:] + ring)
        return sends

    def count(self, call: Call) -> int:
        if call.algorithm is Algorithm.TREE:
            return 2 * (call.ranks - 1) * (-(-call.size_bytes // PIECE_BYTES) + 2 * call.channels)
        return 2 * call.ranks * (call.ranks - 1) * call.channels

    def busbw_factor(self, ranks: int) -> float:
        return 2 * (ranks - 1) / ranks


def _allreduce_hierarchical(
    sends: list[Send], orders: Sequence[list[int]], size_bytes: int, group: int
) -> None:
    """A chunk per rank and channel: reduced in every group, then among the groups, and back.

    In each group the member at the owner's place collects and distributes, so that traffic between
    groups stays among members of the same place: with one place per NIC, on one rail.
    """
    ranks = len(orders[0])
    for index, share in enumerate(split(size_bytes, ranks)):
        home, member = divmod(index, group)
        for order, chunk in zip(orders, split(share, len(orders)), strict=True):
            if not chunk:
                continue
            groups = [
                rotated(order[start : start + group], member) for start in range(0, ranks, group)
            ]
            ring = groups[home:] + groups[:home]
            reduced = [chain(sends, edges[1:] + edges[:1], chunk) for edges in ring]
            # The sum starts in the group after home, is complete at home, and goes round again.
            whole: list[tuple[int, ...]] = []
            after: tuple[int, ...] = ()
            for step in range(1, len(ring)):
                source, target = ring[step][0], ring[(step + 1) % len(ring)][0]
                after = (add(sends, source, target, chunk, after + reduced[step]),)
            whole.append(after + reduced[0])
            for source_group, target_group in pairwise(ring):
                after = (add(sends, source_group[0], target_group[0], chunk, whole[-1]),)
                whole.append(after)
            for edges, ready in zip(ring, whole, strict=True):
                chain(sends, edges, chunk, ready)


def _allreduce_trees(sends: list[Send], call: Call) -> None:
    """Half of each channel goes up and down one tree, half another whose inner groups are leaves of
    the first."""
    group = call.group or 1
    for order, part in zip(call.orders, split(call.size_bytes, call.channels), strict=True):
        groups = [order[start : start + group] for start in range(0, call.ranks, group)]
        other = groups[::-1] if len(groups) % 2 == 0 else groups[1:] + groups[:1]
        for tree, half in zip((groups, other), split(part, 2), strict=True):
            for piece in pieces(half):
                up_and_down(sends, tree, piece)


def up_and_down(sends: list[Send], groups: Sequence[Sequence[int]], size_bytes: int) -> None:
    """Reduce to the first rank of group 0 and broadcast from it: in a chain in each group, and in a
    tree of the groups' first ranks."""
    leaves_first = sorted(range(1, len(groups)), key=lambda position: position & -position)
    edges = [(low, high) for group in groups for high, low in pairwise(group)][::-1]
    edges += [
        (groups[position][0], groups[parent_of(position, len(groups))][0])
        for position in leaves_first
    ]
    arrived: dict[int, tuple[int, ...]] = {rank: () for group in groups for rank in group}
    for child, parent in edges:
        up = add(sends, child, parent, size_bytes, arrived[child])
        arrived[parent] += (up,)
    for child, parent in reversed(edges):
        down = add(sends, parent, child, size_bytes, arrived[parent])
        arrived[child] = (down,)
