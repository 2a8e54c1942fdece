"""Resilient next-hop groups: which bucket a hash is in, and which member has the bucket.

In: the weights of a group's members and its buckets, planned or read from a running namespace.
Out: the member that takes a hash. A group starts with the table that `filled` gives for empty
buckets, and what a member's loss moves at once is known too, given which buckets are in use; what
moves later, as buckets fall idle, depends on traffic and time: a running group's table is read.
"""

from __future__ import annotations

import socket
import struct
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path

from labs.runtime import netlink
from labs.runtime.namespaces import inside

# include/uapi/linux/rtnetlink.h and nexthop.h
RTM_GETNEXTHOP = 106
RTM_GETNEXTHOPBUCKET = 118
NLA_TYPE_MASK = 0x3FFF
NHA_ID, NHA_GROUP, NHA_GROUP_TYPE, NHA_RES_BUCKET = 1, 2, 3, 13
NHA_RES_BUCKET_INDEX, NHA_RES_BUCKET_NH_ID = 1, 3
NEXTHOP_GRP_TYPE_RES = 1

_NHMSG = struct.Struct("=BBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_MEMBER = struct.Struct("=IBBH")


@dataclass(frozen=True, slots=True)
class ResilientGroup:
    """A running group: its members' nexthop ids and weights in its order, and its buckets.

    `buckets` has the id of the nexthop in each.
    """

    members: tuple[int, ...]
    weights: tuple[int, ...]
    buckets: tuple[int, ...]

    def select(self, flow_hash: int) -> int:
        """The index of the member that takes `flow_hash`."""
        return self.members.index(self.buckets[bucket_of(flow_hash, len(self.buckets))])


def bucket_of(flow_hash: int, buckets: int) -> int:
    """The bucket of a hash. Source: nexthop_select_path_res (net/ipv4/nexthop.c)."""
    return flow_hash % buckets


def wanted(weights: Sequence[int], buckets: int) -> tuple[int, ...]:
    """How many buckets each member is to have. Source: nh_res_group_rebalance."""
    total = sum(weights)
    bounds = [(buckets * each + total // 2) // total for each in accumulate(weights, initial=0)]
    return tuple(after - before for before, after in pairwise(bounds))


def filled(
    buckets: Sequence[int | None], weights: Sequence[int], busy: Collection[int] = ()
) -> tuple[int, ...]:
    """The table that the kernel makes at once of `buckets`, which hold members' indices or None.

    In order, each empty bucket, and each that is not busy while its member has more than it wants,
    goes to the last member of the group that has fewer than it wants. `busy` has the numbers of
    buckets that were used since they were last moved, the last time within the group's idle timer.
    With all empty it is the table of a new group.

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

    The lost member's buckets move, and where rounding gives another member fewer than before, some
    of its own that are not `busy`.
    """
    left = [i for i in range(len(weights)) if i != member]
    emptied = [None if each == member else left.index(each) for each in buckets]
    return tuple(left[each] for each in filled(emptied, [weights[i] for i in left], busy))


def read_resilient_groups(netns: Path) -> Mapping[int, ResilientGroup]:
    """The resilient groups of a running namespace, by the id of their nexthop object.

    Raises OSError when the namespace can not be entered or the kernel has no such groups (before
    Linux 5.13).
    """
    groups, buckets = inside(netns, _dump_groups_and_buckets)
    found = {}
    for group in groups:
        if _u16(group.get(NHA_GROUP_TYPE)) != NEXTHOP_GRP_TYPE_RES:
            continue
        members = list(_MEMBER.iter_unpack(group[NHA_GROUP]))
        identifier = _u32(group[NHA_ID])
        table = {
            _u16(bucket[NHA_RES_BUCKET_INDEX]): _u32(bucket[NHA_RES_BUCKET_NH_ID])
            for owner, bucket in buckets
            if owner == identifier
        }
        found[identifier] = ResilientGroup(
            members=tuple(each[0] for each in members),
            weights=tuple((each[1] | each[2] << 8) + 1 for each in members),
            buckets=tuple(table[index] for index in range(len(table))),
        )
    return found


_Attributes = dict[int, bytes]


def _dump_groups_and_buckets() -> tuple[list[_Attributes], list[tuple[int, _Attributes]]]:
    with netlink.open_socket() as channel:
        objects = [_attributes(body) for body in _dump(channel, RTM_GETNEXTHOP)]
        buckets = [_attributes(body) for body in _dump(channel, RTM_GETNEXTHOPBUCKET)]
    return (
        [each for each in objects if NHA_GROUP in each],
        [(_u32(each[NHA_ID]), _attributes(each[NHA_RES_BUCKET])) for each in buckets],
    )


def _dump(channel: socket.socket, kind: int) -> Iterator[bytes]:
    """The attributes, unparsed, of every message that answers a dump request."""
    for body in netlink.dump(channel, kind, bytes(_NHMSG.size)):
        yield body[_NHMSG.size :]


def _attributes(data: bytes) -> _Attributes:
    found = {}
    offset = 0
    while offset < len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, offset)
        found[kind & NLA_TYPE_MASK] = data[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    return found


def _u16(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "little")


def _u32(value: bytes) -> int:
    return int.from_bytes(value, "little")
