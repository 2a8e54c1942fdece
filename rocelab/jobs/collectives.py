"""Collectives as schedules of sends between ranks, each with the sends that must finish before it.

`schedule` takes a pattern, the numbers of ranks and bytes, and the algorithm's parameters, and
returns a frozen `Schedule` with every byte that the collective moves. It knows nothing of the
ranks' places or of the transport. Standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rocelab.base.doors import registered
from rocelab.base.errors import InputError
from rocelab.jobs.patterns.base import (
    IN_NVLINK,
    IN_SWITCH,
    PEERS_IN_FLIGHT,
    Algorithm,
    Call,
    JobPattern,
    Send,
)
from rocelab.jobs.patterns.door import GROUP, PATTERNS

MAX_SENDS = 2**22
"""The most sends of one schedule: AlltoAll among 2,048 ranks, some gigabytes of memory."""


class _ShippedPattern(StrEnum):
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


if TYPE_CHECKING:
    Pattern = _ShippedPattern
else:
    Pattern = StrEnum(
        "Pattern",
        {
            **{name: member.value for name, member in _ShippedPattern.__members__.items()},
            **{
                name.upper().replace("-", "_"): name
                for name in sorted(registered(GROUP) - {*_ShippedPattern})
            },
        },
        module=__name__,
    )
    Pattern.__doc__ = (
        "What the ranks do together, those of installed packages too; sizes mean what they mean in "
        "nccl-tests (its doc/PERFORMANCE.md)."
    )


def kind_of(pattern: Pattern) -> JobPattern:
    """What is registered as a pattern. Raises InputError for one that cannot be used."""
    return PATTERNS.find(pattern.value)


def patterns_where(holds: Callable[[JobPattern], bool]) -> frozenset[Pattern]:
    """The patterns of which something holds."""
    return frozenset(Pattern(name) for name, kind in PATTERNS.all().items() if holds(kind))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Every send of an iteration of a job. A send's id is its index; it is greater than the ids in
    its `after`. A rank's sends are in the order in which it comes to them, channel by channel in an
    AlltoAll(v)."""

    pattern: Pattern | None
    """None: the steps of a workload."""
    ranks: int
    size_bytes: int
    """As the pattern counts them; of a workload all that it sends."""
    sends: tuple[Send, ...]
    ends: Mapping[int, IterationEnd] = field(default_factory=dict)
    """Of each rank that computes after its last send."""
    own_queue_pairs: bool = False
    """Each send has a connection of its own; else all that two ranks send each other share one."""


@dataclass(frozen=True, slots=True)
class IterationEnd:
    """When a rank's iteration ends: `lags_ns` after the end of each send of `after`, and `at_ns`
    after the iteration's begin."""

    after: tuple[int, ...] = ()
    lags_ns: tuple[int, ...] = ()
    at_ns: int = 0


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
    in_flight: int = PEERS_IN_FLIGHT,
    mesh: bool = False,
) -> Schedule:
    """The sends of `pattern` among `ranks` ranks.

    `size_bytes` is the buffer of an AllReduce or Broadcast, all ranks' output of an AllGather or
    Gather, the input of a ReduceScatter, a rank's send buffer of an AlltoAll(v), and what each
    sender sends in an incast, pairs or a permutation. If it does not divide evenly, parts differ by
    a byte; empty parts are not sent.

    The patterns say how they send (`rocelab.jobs.patterns`).

    `channels` parts of the buffer go through the pattern independently, rings and trees in orders
    rotated within each `group` (all ranks, if None), so that in each channel another member sends
    the data that leaves the group. `in_flight` is the number of others that a rank sends to at once
    in a channel of an AlltoAll(v). mesh: whether each two ranks of a group have a link of their
    own. Raises InputError if the numbers do not fit.
    """
    check_collective(pattern, ranks, size_bytes, algorithm, channels, group, root)
    expected = count_sends(pattern, ranks, size_bytes, algorithm, channels, group)
    if expected > MAX_SENDS:
        raise InputError(
            f"{pattern} of {ranks} ranks is {expected:,} sends; at most {MAX_SENDS:,} are planned",
            hint="use fewer ranks or channels, or a smaller size",
        )
    if algorithm in IN_SWITCH:
        what = "the switch of an NVLink domain, which no lab has"
        if algorithm not in IN_NVLINK:
            what = "switches that reduce, and a lab's are Linux kernels, which forward"
        raise InputError(
            f"{algorithm} is done by {what}",
            hint="simulate it: `rocelab simulate --engine fluid --host-model dgx-h100`",
        )
    call = Call(ranks, size_bytes, algorithm, channels, group, root, seed, in_flight, mesh)
    kind = kind_of(pattern)
    sends = kind.sends(call)
    if PATTERNS.origin(pattern.value) is not None:
        _check_sends(pattern, ranks, sends)
    return Schedule(
        pattern, ranks, size_bytes, tuple(sends) if kind.is_exchange else _in_rounds(sends)
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
        raise InputError(f"{pattern} of {ranks} ranks", hint="use two ranks or more")
    for name, value in (("size", size_bytes), ("channels", channels)):
        if value < 1:
            raise InputError(f"{name} is {value}", hint=f"give a {name} of 1 or more")
    if group is not None and (group < 1 or ranks % group):
        raise InputError(
            f"{ranks} ranks do not divide into groups of {group}",
            hint="give a group size that divides the number of ranks",
        )
    if algorithm in (Algorithm.HIERARCHICAL, Algorithm.PXN) and group is None:
        raise InputError(f"{pattern} in {algorithm} needs groups", hint="give the ranks of a group")
    if algorithm in IN_SWITCH and pattern is not Pattern.ALLREDUCE and group not in (None, ranks):
        raise InputError(
            f"{pattern} has {algorithm} in one NVLink domain, not among domains of {group} ranks",
            hint="take ring",
        )
    if not 0 <= root < ranks:
        raise InputError(f"there is no rank {root}", hint=f"the ranks are 0 to {ranks - 1}")


def count_sends(
    pattern: Pattern,
    ranks: int,
    size_bytes: int,
    algorithm: Algorithm = Algorithm.RING,
    channels: int = 1,
    group: int | None = None,
) -> int:
    """How many sends `schedule` makes at most, without making them."""
    return kind_of(pattern).count(Call(ranks, size_bytes, algorithm, channels, group))


def point_to_point(pattern: Pattern, ranks: int, seed: int = 0) -> tuple[tuple[int, int], ...]:
    """(source, destination) of an incast, pairs or a permutation, by source.

    Raises InputError for pairs of an odd number of ranks, ValueError for another pattern.
    """
    return kind_of(pattern).pairs(ranks, seed)


def _check_sends(pattern: Pattern, ranks: int, sends: Sequence[Send]) -> None:
    """Raise InputError for sends of a plug-in's pattern that no lab can send."""
    for number, send in enumerate(sends):
        ends = {send.source, send.destination}
        if (
            send.id != number
            or len(ends) < 2
            or not ends <= set(range(ranks))
            or send.size_bytes < 1
            or not all(0 <= before < number for before in send.after)
        ):
            raise InputError(
                f"pattern {pattern} of {PATTERNS.origin(pattern.value)} plans {send} as number "
                f"{number}",
                hint="its id is its number, its ranks are two of the job's, it has bytes, and it "
                "waits for earlier sends only",
            )


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
