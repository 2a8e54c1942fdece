"""A running namespace's resilient next-hop groups, as its kernel gives them."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from rocelab.forwarding.resilient import ResilientGroup
from rocelab.kernel import netlink
from rocelab.kernel.namespaces import inside

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
