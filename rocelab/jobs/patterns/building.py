"""Sends of collectives, added to a list: chains, rings, exchanges. Standard library only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from rocelab.jobs.patterns.base import Send

PIECE_BYTES = 512 * 1024
"""The unit that a tree or a chain forwards: NCCL's buffer of 4 MiB in 8 steps (NCCL_STEPS)."""


def rotated(order: list[int], first: int) -> list[int]:
    return order[first:] + order[:first]


def split(size_bytes: int, parts: int) -> list[int]:
    """`size_bytes` in parts that differ by a byte at most."""
    bounds = [size_bytes * part // parts for part in range(parts + 1)]
    return [high - low for low, high in pairwise(bounds)]


def pieces(size_bytes: int) -> list[int]:
    return split(size_bytes, -(-size_bytes // PIECE_BYTES)) if size_bytes else []


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


def exchange(
    sends: list[Send], rows: Sequence[Sequence[int]], channels: int, in_flight: int
) -> None:
    """Add sends at growing distance, each of a rank after the one that is `in_flight` before it in
    its channel; channels start at different distances."""
    ranks = len(rows)
    for channel in range(channels):
        parts = (
            rows
            if channels == 1
            else [[split(size, channels)[channel] for size in row] for row in rows]
        )
        slots = min(in_flight, ranks - 1)
        last: list[list[tuple[int, ...]]] = [[()] * slots for _ in range(ranks)]
        first = channel * (ranks - 1) // channels
        for step in range(ranks - 1):
            distance = (first + step) % (ranks - 1) + 1
            for source in range(ranks):
                destination = (source + distance) % ranks
                size_bytes = parts[source][destination]
                if size_bytes:
                    before = last[source][step % slots]
                    last[source][step % slots] = (
                        add(sends, source, destination, size_bytes, before),
                    )
