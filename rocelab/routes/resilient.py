"""Resilient next-hop groups: the bucket of a hash, and the member of a bucket.

A group starts with the table that `filled` returns for empty buckets. `without` computes the
buckets that move at once when a member is lost, given which buckets are in use. Later moves, when
buckets become idle, depend on traffic and time: the table of a running group must be read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise


def wanted(weights: Sequence[int], buckets: int) -> tuple[int, ...]:
    """The number of buckets that each member should have. Source: nh_res_group_rebalance."""
    total = sum(weights)
    bounds = [(buckets * weight + total // 2) // total for weight in accumulate(weights, initial=0)]
    return tuple(after - before for before, after in pairwise(bounds))


def filled(
    buckets: Sequence[int | None], weights: Sequence[int], busy: Collection[int] = ()
) -> tuple[int, ...]:
    """The table that the kernel makes at once from `buckets`, which hold members' indices or None.

    In order, each empty bucket, and each that is not busy while its member has more than it wants,
    goes to the last member of the group that has fewer than it wants. `busy` has the numbers of
    buckets that were used since they were last moved, and within the group's idle timer. If all are
    empty the result is the table of a new group.

    Source: nh_res_group_rebalance, which puts each member that wants buckets at the head of a list,
    and nh_res_table_upkeep (net/ipv4/nexthop.c), for unbalanced_timer 0.
    """
    wants = wanted(weights, len(buckets))
    has = Counter(member for member in buckets if member is not None)
    lacking = [member for member in range(len(weights)) if has[member] < wants[member]]
    table = []
    for number, member in enumerate(buckets):
        if member is None or (has[member] > wants[member] and number not in busy):
            if member is not None:
                has[member] -= 1
            member = lacking[-1]
            has[member] += 1
            if has[member] == wants[member]:
                lacking.pop()
        table.append(member)
    return tuple(table)


def without(
    buckets: Sequence[int], weights: Sequence[int], member: int, busy: Collection[int] = ()
) -> tuple[int, ...]:
    """The table right after `member` was removed from a group; indices are the old group's.

    The lost member's buckets move. If rounding gives another member fewer buckets than before, some
    of its buckets that are not `busy` move as well.
    """
    left = [i for i in range(len(weights)) if i != member]
    emptied = [None if bucket == member else left.index(bucket) for bucket in buckets]
    return tuple(left[index] for index in filled(emptied, [weights[i] for i in left], busy))
