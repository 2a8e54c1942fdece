"""Sends of collectives, added to a list: chains, rings, exchanges. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from rocelab.jobs.patterns.base import Algorithm, Call, Send

PIECE_BYTES = 512 * 1024
"""The unit that a tree or a chain forwards: NCCL's buffer of 4 MiB in 8 steps (NCCL_STEPS)."""


RELAYED_BYTES = 128 * 1024
"""What a GPU relays at once for another: NCCL_P2P_NET_CHUNKSIZE."""


def rotated(order: list[int], first: int) -> list[int]:
    return order[first:] + order[:first]


def split(size_bytes: int, parts: int) -> list[int]:
    """`size_bytes` in parts that differ by a byte at most."""
    bounds = [size_bytes * part // parts for part in range(parts + 1)]
    return [high - low for low, high in pairwise(bounds)]


def pieces(size_bytes: int, most: int = PIECE_BYTES) -> list[int]:
    return split(size_bytes, -(-size_bytes // most)) if size_bytes else []


def add(
    sends: list[Send], source: int, destination: int, size_bytes: int, after: tuple[int, ...]
) -> int:
    sends.append(Send(len(sends), source, destination, size_bytes, after))
    return len(sends) - 1


def parent_of(position: int, positions: int) -> int:
    """The parent in a binary tree whose leaves are the odd positions; 0 is the root.

    A position's distance to its children halves with each level down, as in a balanced search tree
    over positions 1 and up; the root stands above that tree, with one child.
    """
    step = position & -position
    above = position + step if position // step % 4 == 1 else position - step
    return above if above < positions else position - step


def chain(
    sends: list[Send], path: Sequence[int], size_bytes: int, after: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Add a send along each step of `path`, each after the one before; return the ids that the end
    waits for."""
    for source, destination in pairwise(path):
        after = (add(sends, source, destination, size_bytes, after),)
    return after


def add_at_once(
    sends: list[Send], source: int, destination: int, size_bytes: int, channels: int
) -> None:
    for part in split(size_bytes, channels):
        if part:
            add(sends, source, destination, part, ())


def add_ring(
    sends: list[Send],
    orders: Sequence[list[int]],
    size_bytes: int,
    path_of: Callable[[list[int]], list[int]],
) -> None:
    """Add a chunk per rank and channel, along the path that `path_of` makes from the ring, starting
    at the owner.

    The owner is the rank that ends with the reduced chunk, or starts with the gathered one.
    """
    for owner, share in enumerate(split(size_bytes, len(orders[0]))):
        for order, chunk in zip(orders, split(share, len(orders)), strict=True):
            if chunk:
                chain(sends, path_of(rotated(order, order.index(owner))), chunk)


def add_aggregated(sends: list[Send], ranks: int, size_bytes: int, *, reduces: bool) -> None:
    """Add the trees of all chunks, each binomial from its owner, farthest ranks first: in each step
    a rank sends another all chunks that take this way at once. reduces: the same backwards."""
    chunks = split(size_bytes, ranks)
    distances = [2**step for step in range((ranks - 1).bit_length())]
    arrived: list[tuple[int, ...]] = [()] * ranks
    for distance in distances if reduces else reversed(distances):
        holders = range(0, ranks - distance, 2 * distance)
        step: list[tuple[int, int]] = []
        for rank in range(ranks):
            far = (rank + distance) % ranks
            source, target = (far, rank) if reduces else (rank, far)
            size = sum(chunks[rank - holder] for holder in holders)
            if size:
                step.append((target, add(sends, source, target, size, arrived[source])))
        for target, send in step:
            arrived[target] += (send,)


def exchange(sends: list[Send], rows: Sequence[Sequence[int]], call: Call) -> None:
    """Add the sends of an AlltoAll(v) of bytes [source][destination]."""
    group = call.group or 1
    for channel in range(call.channels):
        parts = (
            rows
            if call.channels == 1
            else [[split(size, call.channels)[channel] for size in row] for row in rows]
        )
        first = channel * (call.ranks - 1) // call.channels
        match call.algorithm:
            case Algorithm.HIERARCHICAL:
                _exchange_in_two(sends, parts, group, call.in_flight)
            case Algorithm.PXN:
                _exchange_at_distances(sends, parts, first, call.in_flight, group)
            case _:
                _exchange_at_distances(sends, parts, first, call.in_flight, 1)


def count_exchanged(call: Call) -> int:
    """How many sends `exchange` adds at most."""
    ranks, group = call.ranks, call.group or 1
    messages = ranks * (ranks - 1) * call.channels
    match call.algorithm:
        case Algorithm.HIERARCHICAL:
            return ranks * (group - 1 + ranks // group - 1) * call.channels
        case Algorithm.PXN:
            return 2 * (messages + ranks * call.size_bytes // RELAYED_BYTES)
        case _:
            return messages


def _exchange_at_distances(
    sends: list[Send], rows: Sequence[Sequence[int]], first: int, in_flight: int, group: int
) -> None:
    """Sends at growing distance from `first` on, each of a rank after the one that is `in_flight`
    before it; to other groups on relays, in pieces."""
    ranks = len(rows)
    slots = min(in_flight, ranks - 1)
    last: list[list[tuple[int, ...]]] = [[()] * slots for _ in range(ranks)]
    for step in range(ranks - 1):
        distance = (first + step) % (ranks - 1) + 1
        for source in range(ranks):
            destination = (source + distance) % ranks
            size_bytes = rows[source][destination]
            if not size_bytes:
                continue
            before = last[source][step % slots]
            relay = source - source % group + destination % group
            if relay in (source, destination):
                sent = add(sends, source, destination, size_bytes, before)
            else:
                for piece in pieces(size_bytes, RELAYED_BYTES):
                    sent = add(sends, source, relay, piece, before)
                    add(sends, relay, destination, piece, (sent,))
                    before = (sent,)
            last[source][step % slots] = (sent,)


def _exchange_in_two(
    sends: list[Send], rows: Sequence[Sequence[int]], group: int, in_flight: int
) -> None:
    """All sends in groups at once, then those of each rank to its place in other groups."""
    ranks = len(rows)
    arrived: list[tuple[int, ...]] = [()] * ranks
    for source in range(ranks):
        first = source - source % group
        for relay in range(first, first + group):
            size_bytes = sum(rows[source][relay % group :: group])
            if relay != source and size_bytes:
                arrived[relay] += (add(sends, source, relay, size_bytes, ()),)
    last: list[list[tuple[int, ...]]] = [[()] * in_flight for _ in range(ranks)]
    for step in range(1, ranks // group):
        for source in range(ranks):
            destination = (source + step * group) % ranks
            first = source - source % group
            size_bytes = sum(rows[member][destination] for member in range(first, first + group))
            if size_bytes:
                before = last[source][step % in_flight] or arrived[source]
                last[source][step % in_flight] = (
                    add(sends, source, destination, size_bytes, before),
                )
