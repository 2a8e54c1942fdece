"""Collectives as schedules of sends between ranks, each with the sends that must finish before it.

`schedule` takes a pattern, the numbers of ranks and bytes, and the algorithm's parameters, and
returns a frozen `Schedule` with every byte that the collective moves. It knows nothing of the
ranks' places or of the transport. Standard library only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from rocelab.base.errors import InputError

PIECE_BYTES = 512 * 1024
"""The unit that a tree or a chain forwards: NCCL's buffer of 4 MiB in 8 steps (NCCL_STEPS)."""

MAX_SENDS = 2**22
"""The most sends of one schedule: AlltoAll among 2,048 ranks, some gigabytes of memory."""


class Pattern(StrEnum):
    """What the ranks do together; sizes mean what they mean in nccl-tests (its doc/PERFORMANCE.md).

    The last three are sets of single sends, for studies of congestion.
    """

    ALLREDUCE = "allreduce"
    ALLGATHER = "allgather"
    REDUCESCATTER = "reducescatter"
    ALLTOALL = "alltoall"
    ALLTOALLV = "alltoallv"
    BROADCAST = "broadcast"
    GATHER = "gather"
    INCAST = "incast"
    PAIRS = "pairs"
    PERMUTATION = "permutation"


POINT_TO_POINT = frozenset({Pattern.INCAST, Pattern.PAIRS, Pattern.PERMUTATION})
EXCHANGES = frozenset({Pattern.ALLTOALL, Pattern.ALLTOALLV})
ROOTED = frozenset({Pattern.BROADCAST, Pattern.GATHER})
IN_RING_ORDER = frozenset(
    {Pattern.ALLREDUCE, Pattern.ALLGATHER, Pattern.REDUCESCATTER, Pattern.BROADCAST}
)


class Algorithm(StrEnum):
    """The algorithm of an AllReduce."""

    RING = "ring"
    TREE = "tree"
    HIERARCHICAL = "hierarchical"


@dataclass(frozen=True, slots=True)
class Send:
    """`size_bytes` (> 0) from rank `source` to rank `destination`; `id` counts a schedule's sends.

    `after` are ids of sends that must finish first. Each either arrives at `source`, which forwards
    or combines its data, or was sent by `source` and finishes when it is acknowledged: the sender
    knows by itself when it may start.
    """

    id: int
    source: int
    destination: int
    size_bytes: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every send of one collective. A send's id is its index; it is greater than the ids in its
    `after`. A rank's sends are in the order in which it comes to them, channel by channel in an
    AlltoAll(v)."""

    pattern: Pattern
    ranks: int
    size_bytes: int
    sends: tuple[Send, ...]


def schedule(
    pattern: Pattern,
    ranks: int,
    size_bytes: int,
    *,
    algorithm: Algorithm = Algorithm.RING,
    channels: int = 1,
    group: int | None = None,
    root: int = 0,
    seed: int = 0,
) -> Schedule:
    """The sends of `pattern` among `ranks` ranks.

    `size_bytes` is the buffer of an AllReduce or Broadcast, all ranks' output of an AllGather or
    Gather, the input of a ReduceScatter, a rank's send buffer of an AlltoAll(v), and what each
    sender sends in an incast, pairs or a permutation. If it does not divide evenly, parts differ by
    a byte; empty parts are not sent.

    - `algorithm` is AllReduce's. ring: Patarasuk and Yuan 2009, `Bandwidth optimal all-reduce
      algorithms`. tree: two binary trees, each for half of the data; no rank has children in both,
      but for the root of one of them if the number of ranks is odd (Sanders, Speck and Traeff
      2009, `Two-tree algorithms for full bandwidth broadcast, reduction and scan`), in pieces of
      PIECE_BYTES. hierarchical: rings within groups of `group` ranks and, from group to group, a
      ring per member.
    - AllGather and ReduceScatter are rings. Broadcast is a chain in ring order from `root`, in
      pieces of PIECE_BYTES: it moves each byte once over each NIC, as a binomial tree does not.
    - AlltoAll goes in rounds: rank r sends to r+1, then r+2, so that no rank receives from all at
      once.
      AlltoAllv's sizes are drawn from `seed` (`uneven_sizes`). The part that a rank keeps is
      counted but not sent.
    - Gather and incast (to rank 0) start all at once; pairs sends from rank 2i to 2i+1, a
      permutation from every rank to another drawn from `seed`.

    `channels` parts of the buffer go through the pattern independently, rings and trees in orders
    rotated within each `group` (all ranks, if None), so that in each channel another member sends
    the data that leaves the group. Raises InputError if the numbers do not fit.
    """
    check_collective(pattern, ranks, size_bytes, algorithm, channels, group, root)
    expected = count_sends(pattern, ranks, size_bytes, algorithm, channels)
    if expected > MAX_SENDS:
        raise InputError(
            f"{pattern} of {ranks} ranks is {expected:,} sends; at most {MAX_SENDS:,} are planned",
            hint="take fewer ranks or channels, or a smaller size",
        )
    sends: list[Send] = []
    orders = [_order(ranks, group or ranks, channel) for channel in range(channels)]
    match pattern:
        case Pattern.ALLREDUCE if algorithm is Algorithm.TREE:
            _allreduce_trees(sends, orders, size_bytes)
        case Pattern.ALLREDUCE if algorithm is Algorithm.HIERARCHICAL and group is not None:
            _allreduce_hierarchical(sends, orders, size_bytes, group)
        case Pattern.ALLREDUCE:
            _ring(sends, orders, size_bytes, lambda ring: ring[1:] + ring)
        case Pattern.REDUCESCATTER:
            _ring(sends, orders, size_bytes, lambda ring: ring[1:] + ring[:1])
        case Pattern.ALLGATHER:
            _ring(sends, orders, size_bytes, lambda ring: ring)
        case Pattern.BROADCAST:
            for order, part in zip(orders, _split(size_bytes, channels), strict=True):
                for piece in _pieces(part):
                    _chain(sends, _rotated(order, order.index(root)), piece)
        case Pattern.ALLTOALL:
            _exchange(sends, [_split(size_bytes, ranks)] * ranks, channels)
        case Pattern.ALLTOALLV:
            _exchange(sends, uneven_sizes(ranks, size_bytes, seed), channels)
        case Pattern.GATHER:
            for rank, share in enumerate(_split(size_bytes, ranks)):
                if rank != root:
                    _at_once(sends, rank, root, share, channels)
        case Pattern.INCAST | Pattern.PAIRS | Pattern.PERMUTATION:
            for source, destination in point_to_point(pattern, ranks, seed):
                _at_once(sends, source, destination, size_bytes, channels)
    return Schedule(
        pattern, ranks, size_bytes, tuple(sends) if pattern in EXCHANGES else _in_rounds(sends)
    )


def check_collective(
    pattern: Pattern,
    ranks: int,
    size_bytes: int,
    algorithm: Algorithm,
    channels: int,
    group: int | None,
    root: int,
) -> None:
    """Raise InputError if the numbers of a collective do not fit together."""
    if ranks < 2:
        raise InputError(f"{pattern} of {ranks} ranks", hint="take two ranks or more")
    for name, value in (("size", size_bytes), ("channels", channels)):
        if value < 1:
            raise InputError(f"{name} is {value}", hint=f"give a {name} of 1 or more")
    if group is not None and (group < 1 or ranks % group):
        raise InputError(
            f"{ranks} ranks do not divide into groups of {group}",
            hint="give a group size that divides the number of ranks",
        )
    if pattern is Pattern.ALLREDUCE and algorithm is Algorithm.HIERARCHICAL and group is None:
        raise InputError("a hierarchical AllReduce needs groups", hint="give the ranks of a group")
    if not 0 <= root < ranks:
        raise InputError(f"there is no rank {root}", hint=f"the ranks are 0 to {ranks - 1}")


def count_sends(
    pattern: Pattern,
    ranks: int,
    size_bytes: int,
    algorithm: Algorithm = Algorithm.RING,
    channels: int = 1,
) -> int:
    """How many sends `schedule` makes at most, without making them."""
    pieces = -(-size_bytes // PIECE_BYTES)
    match pattern:
        case Pattern.ALLREDUCE if algorithm is Algorithm.TREE:
            return 2 * (ranks - 1) * (pieces + 2 * channels)
        case Pattern.ALLREDUCE:
            return 2 * ranks * (ranks - 1) * channels
        case Pattern.BROADCAST:
            return (ranks - 1) * (pieces + channels)
        case Pattern.ALLGATHER | Pattern.REDUCESCATTER | Pattern.ALLTOALL | Pattern.ALLTOALLV:
            return ranks * (ranks - 1) * channels
        case Pattern.GATHER | Pattern.INCAST | Pattern.PAIRS | Pattern.PERMUTATION:
            return ranks * channels


def point_to_point(pattern: Pattern, ranks: int, seed: int = 0) -> tuple[tuple[int, int], ...]:
    """(source, destination) of an incast, pairs or a permutation, by source.

    Raises InputError for pairs of an odd number of ranks, ValueError for another pattern.
    """
    match pattern:
        case Pattern.INCAST:
            return tuple((rank, 0) for rank in range(1, ranks))
        case Pattern.PAIRS:
            if ranks % 2:
                raise InputError(
                    f"{ranks} ranks do not make pairs", hint="take an even number of ranks"
                )
            return tuple((rank, rank + 1) for rank in range(0, ranks, 2))
        case Pattern.PERMUTATION:
            rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
            partners = list(range(ranks))
            # About one shuffle in e moves every rank; taking the first such one keeps all equally
            # likely.
            while any(rank == partner for rank, partner in enumerate(partners)):
                rng.shuffle(partners)
            return tuple(enumerate(partners))
        case _:
            raise ValueError(f"{pattern} is no set of single sends")


def uneven_sizes(ranks: int, size_bytes: int, seed: int) -> list[list[int]]:
    """AlltoAllv's bytes [source][destination]: each row a random division of `size_bytes`.

    All divisions are equally likely, so a row's largest part is about ln(ranks) times the mean.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
    rows = []
    for _ in range(ranks):
        cuts = sorted(int(rng.random() * (size_bytes + 1)) for _ in range(ranks - 1))
        rows.append([high - low for low, high in zip([0, *cuts], [*cuts, size_bytes], strict=True)])
    return rows


def _order(ranks: int, group: int, channel: int) -> list[int]:
    """The ranks in a channel's order: group by group, each rotated by the channel's number."""
    return [
        start + (member + channel) % group
        for start in range(0, ranks, group)
        for member in range(group)
    ]


def _rotated(order: list[int], first: int) -> list[int]:
    return order[first:] + order[:first]


def _split(size_bytes: int, parts: int) -> list[int]:
    """`size_bytes` in parts that differ by a byte at most."""
    bounds = [size_bytes * part // parts for part in range(parts + 1)]
    return [high - low for low, high in pairwise(bounds)]


def _pieces(size_bytes: int) -> list[int]:
    return _split(size_bytes, -(-size_bytes // PIECE_BYTES)) if size_bytes else []


def _add(
    sends: list[Send], source: int, destination: int, size_bytes: int, after: tuple[int, ...]
) -> int:
    sends.append(Send(len(sends), source, destination, size_bytes, after))
    return len(sends) - 1


def _in_rounds(sends: Sequence[Send]) -> tuple[Send, ...]:
    """The sends by how many others come before each, one after the other."""
    rounds: list[int] = []
    for send in sends:
        rounds.append(max((rounds[before] + 1 for before in send.after), default=0))
    order = sorted(range(len(sends)), key=rounds.__getitem__)
    number = dict(zip(order, range(len(sends)), strict=True))
    return tuple(
        replace(sends[old], id=new, after=tuple(number[before] for before in sends[old].after))
        for new, old in enumerate(order)
    )


def _chain(
    sends: list[Send], path: Sequence[int], size_bytes: int, after: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Add a send along each step of `path`, each after the one before; return the ids that the end
    waits for."""
    for source, destination in pairwise(path):
        after = (_add(sends, source, destination, size_bytes, after),)
    return after


def _at_once(
    sends: list[Send], source: int, destination: int, size_bytes: int, channels: int
) -> None:
    for part in _split(size_bytes, channels):
        if part:
            _add(sends, source, destination, part, ())


def _ring(
    sends: list[Send],
    orders: Sequence[list[int]],
    size_bytes: int,
    path_of: Callable[[list[int]], list[int]],
) -> None:
    """Add a chunk per rank and channel, along the path that `path_of` makes from the ring, starting
    at the owner.

    The owner is the rank that ends with the reduced chunk, or starts with the gathered one.
    """
    for owner, share in enumerate(_split(size_bytes, len(orders[0]))):
        for order, chunk in zip(orders, _split(share, len(orders)), strict=True):
            if chunk:
                _chain(sends, path_of(_rotated(order, order.index(owner))), chunk)


def _allreduce_hierarchical(
    sends: list[Send], orders: Sequence[list[int]], size_bytes: int, group: int
) -> None:
    """A chunk per rank and channel: reduced in every group, then among the groups, and back.

    In each group the member at the owner's place collects and distributes, so that traffic between
    groups stays among members of the same place: with one place per NIC, on one rail.
    """
    ranks = len(orders[0])
    for index, share in enumerate(_split(size_bytes, ranks)):
        home, member = divmod(index, group)
        for order, chunk in zip(orders, _split(share, len(orders)), strict=True):
            if not chunk:
                continue
            groups = [
                _rotated(order[start : start + group], member) for start in range(0, ranks, group)
            ]
            ring = groups[home:] + groups[:home]
            reduced = [_chain(sends, edges[1:] + edges[:1], chunk) for edges in ring]
            # The sum starts in the group after home, is complete at home, and goes round again.
            whole: list[tuple[int, ...]] = []
            after: tuple[int, ...] = ()
            for step in range(1, len(ring)):
                source, target = ring[step][0], ring[(step + 1) % len(ring)][0]
                after = (_add(sends, source, target, chunk, after + reduced[step]),)
            whole.append(after + reduced[0])
            for source_group, target_group in pairwise(ring):
                after = (_add(sends, source_group[0], target_group[0], chunk, whole[-1]),)
                whole.append(after)
            for edges, ready in zip(ring, whole, strict=True):
                _chain(sends, edges, chunk, ready)


def _allreduce_trees(sends: list[Send], orders: Sequence[list[int]], size_bytes: int) -> None:
    """Half of each channel goes up and down one tree, half another whose inner ranks are leaves of
    the first."""
    for order, part in zip(orders, _split(size_bytes, len(orders)), strict=True):
        other = order[::-1] if len(order) % 2 == 0 else _rotated(order, 1)
        for ranks, half in zip((order, other), _split(part, 2), strict=True):
            for piece in _pieces(half):
                _up_and_down(sends, ranks, piece)


def _parent(position: int, positions: int) -> int:
    """The parent in a binary tree whose leaves are the odd positions; 0 is the root.

    A position's distance to its children halves with each level down, as in a balanced search tree
    over positions 1 and up; the root stands above that tree, with one child.
    """
    step = position & -position
    above = position + step if position // step % 4 == 1 else position - step
    return above if above < positions else position - step


def _up_and_down(sends: list[Send], ranks: Sequence[int], size_bytes: int) -> None:
    """Reduce to the rank at position 0 and broadcast from it."""
    leaves_first = sorted(range(1, len(ranks)), key=lambda position: position & -position)
    edges = [(position, _parent(position, len(ranks))) for position in leaves_first]
    arrived: list[tuple[int, ...]] = [()] * len(ranks)
    for child, parent in edges:
        up = _add(sends, ranks[child], ranks[parent], size_bytes, arrived[child])
        arrived[parent] += (up,)
    for child, parent in reversed(edges):
        down = _add(sends, ranks[parent], ranks[child], size_bytes, arrived[parent])
        arrived[child] = (down,)


def _exchange(sends: list[Send], rows: Sequence[Sequence[int]], channels: int) -> None:
    """Add rounds of sends at growing distance, each send of a rank after its previous one; channels
    start at different rounds."""
    ranks = len(rows)
    for channel in range(channels):
        parts = (
            rows
            if channels == 1
            else [[_split(size, channels)[channel] for size in row] for row in rows]
        )
        last: list[tuple[int, ...]] = [()] * ranks
        first = channel * (ranks - 1) // channels
        for step in range(ranks - 1):
            distance = (first + step) % (ranks - 1) + 1
            for source in range(ranks):
                destination = (source + distance) % ranks
                size_bytes = parts[source][destination]
                if size_bytes:
                    last[source] = (_add(sends, source, destination, size_bytes, last[source]),)
