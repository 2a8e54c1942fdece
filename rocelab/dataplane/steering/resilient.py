"""Resilient groups over BGP's routes: the next-hop objects and routes that a switch should have.

Compares what a switch's kernel holds (BGP's routes, and the objects and routes of an earlier round)
with what it should hold, and returns the netlink messages that make a resilient group of each set
of two or more next hops, and a route of better metric over it per prefix. Pure and stateless:
rocelab's own objects are known by the range of their ids, so that a controller that was killed
continues from what the kernel holds.
"""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rocelab.base.family import Family
from rocelab.linux.fib import (
    GROUP_ENTRY,
    GROUP_TYPE_RESILIENT,
    NHA_GATEWAY,
    NHA_GROUP,
    NHA_GROUP_TYPE,
    NHA_ID,
    NHA_OIF,
    NHA_RES_GROUP,
    NHA_RES_GROUP_BUCKETS,
    NHMSG,
    RT_TABLE_MAIN,
    RTA_DST,
    RTA_NH_ID,
    RTA_PRIORITY,
    RTM_DELNEXTHOP,
    RTM_DELROUTE,
    RTM_NEWNEXTHOP,
    RTM_NEWROUTE,
    RTMSG,
    RTN_UNICAST,
    GroupMember,
    KernelRoute,
    NexthopGroup,
)
from rocelab.linux.netlink import REQUEST_ACK_REPLACE, attribute, request, u32

RTPROT_BGP, RTPROT_BIRD = 186, 12
"""The numbers of routes of FRR's BGP and of BIRD (include/uapi/linux/rtnetlink.h)."""

PROTOCOL = 1
"""RTPROT_REDIRECT: the one number whose routes zebra of every release leaves alone. It takes any
unknown number, and in FRR 10 RTPROT_KERNEL too, for a route of the system, prefers it to BGP's and
removes BGP's from the kernel (FRR zebra/rt_netlink.c, netlink_route_change_read_unicast)."""

METRIC = 10
"""Better than the 20 that zebra gives its own routes, and the 32 of BIRD's."""

MEMBERS_FROM, GROUPS_FROM, IDS_END = 1_000_000, 2_000_000, 3_000_000

IDLE_S = 1.0
"""A bucket may move once no packet has used it for this long. A flow that moves during a pause
longer than the time that any queue takes to drain cannot be reordered; the pauses of a collective
are shorter."""

UNBALANCED_S = 0.0
"""Never move a bucket that is in use: RoCE's receivers take reordering for loss."""

_USER_HZ = 100
_RES_IDLE_TIMER, _RES_UNBALANCED_TIMER = 2, 3
_NESTED = 0x8000

Place = tuple[Family, int, int]
"""A prefix: its family, its address and its length."""


@dataclass(frozen=True, slots=True)
class ResilientState:
    """rocelab's own objects in a switch's kernel: next hops and groups by id, the group of each
    prefix."""

    members: Mapping[int, GroupMember]
    groups: Mapping[int, NexthopGroup]
    group_of: Mapping[Place, int]


def own_state(
    routes: Iterable[KernelRoute],
    members: Mapping[int, GroupMember],
    groups: Mapping[int, NexthopGroup],
) -> ResilientState:
    """The part of a kernel's state that rocelab made."""
    return ResilientState(
        {
            number: member
            for number, member in members.items()
            if MEMBERS_FROM <= number < GROUPS_FROM
        },
        {number: group for number, group in groups.items() if GROUPS_FROM <= number < IDS_END},
        {_place(route): route.group for route in routes if is_own(route)},
    )


def _place(route: KernelRoute) -> Place:
    return route.family, route.destination, route.length


def is_own(route: KernelRoute) -> bool:
    """Whether rocelab made a route."""
    return GROUPS_FROM <= route.group < IDS_END


def wanted_state(
    routes: Iterable[KernelRoute], present: ResilientState, buckets: int, *, settled: bool = True
) -> ResilientState:
    """The state to reach: a group for each set of two or more next hops of a BGP route.

    An existing group keeps its id, and so its buckets, for the largest set of its prefixes that
    have equal next hops; the others leave it. New prefixes share a group of equal next hops.

    While routes still change (not `settled`), a group that next hops come back to keeps those that
    it has until all its prefixes agree: zebra writes them one after another, and a prefix that
    leaves a group takes new buckets, which moves its flows.
    """
    members: dict[int, GroupMember] = {}
    wanted: dict[Place, tuple[tuple[int, int], ...]] = {}
    for route in routes:
        if route.protocol not in (RTPROT_BGP, RTPROT_BIRD) or len(route.hops) < 2:
            continue
        for hop in route.hops:
            members[MEMBERS_FROM + hop.interface] = GroupMember(hop.interface, hop.gateway)
        wanted[_place(route)] = tuple(
            (MEMBERS_FROM + hop.interface, hop.weight) for hop in route.hops
        )
    groups: dict[int, NexthopGroup] = {}
    group_of: dict[Place, int] = {}
    for number, places in _users(wanted, present, buckets).items():
        held = present.groups[number]
        grows = all(set(held.members) <= set(entries) for entries in places)
        if grows and len(places) > 1 and not settled:
            groups[number] = held
            group_of |= dict.fromkeys(itertools.chain(*places.values()), number)
            continue
        entries, kept = max(places.items(), key=lambda part: (len(part[1]), part[0]))
        groups[number] = NexthopGroup(entries, buckets)
        group_of |= dict.fromkeys(kept, number)
    by_entries = {group.members: number for number, group in sorted(groups.items())}
    for place, entries in sorted(wanted.items()):
        if place in group_of:
            continue
        if entries not in by_entries:
            number = next(
                free
                for free in range(GROUPS_FROM, IDS_END)
                if free not in groups and free not in present.groups
            )
            by_entries[entries] = number
            groups[number] = NexthopGroup(entries, buckets)
        group_of[place] = by_entries[entries]
    return ResilientState(members, groups, group_of)


def _users(
    wanted: Mapping[Place, tuple[tuple[int, int], ...]], present: ResilientState, buckets: int
) -> dict[int, dict[tuple[tuple[int, int], ...], list[Place]]]:
    """The prefixes of each group that can stay, by the next hops that they should have."""
    users: dict[int, dict[tuple[tuple[int, int], ...], list[Place]]] = {}
    for place, number in sorted(present.group_of.items()):
        group = present.groups.get(number)
        if place in wanted and group is not None and group.buckets == buckets:
            users.setdefault(number, {}).setdefault(wanted[place], []).append(place)
    return users


def messages(present: ResilientState, wanted: ResilientState) -> list[bytes]:
    """The messages that turn one state into the other, in an order in which every route always has
    a group.

    When prefixes move to a new group, that group is first made equal to their old one and then
    changed: equal groups get equal buckets, so that only the necessary buckets move.
    """
    made = [
        _set_member(number, member)
        for number, member in wanted.members.items()
        if present.members.get(number) != member
    ]
    for number, group in wanted.groups.items():
        if present.groups.get(number) == group:
            continue
        if number not in present.groups:
            made += _group_copy(number, present, wanted)
        made.append(_set_group(number, group))
    made += [
        _set_route(place, number)
        for place, number in wanted.group_of.items()
        if present.group_of.get(place) != number
    ]
    made += [_delete_route(place) for place in present.group_of if place not in wanted.group_of]
    gone = [number for number in present.groups if number not in wanted.groups]
    gone += [number for number in present.members if number not in wanted.members]
    return made + [_delete_object(number) for number in gone]


def _group_copy(number: int, present: ResilientState, wanted: ResilientState) -> list[bytes]:
    """A copy, under the new group's id, of the group that its prefixes come from."""
    users = [place for place, group in wanted.group_of.items() if group == number]
    before = present.groups.get(present.group_of.get(users[0], 0))
    group = wanted.groups[number]
    if before is None or before.buckets != group.buckets:
        return []
    kept = tuple(entry for entry in before.members if entry[0] in wanted.members)
    if not {member for member, _ in group.members} <= {member for member, _ in kept}:
        return []
    return [_set_group(number, NexthopGroup(kept, group.buckets))]


def removal(present: ResilientState) -> list[bytes]:
    """The messages that remove everything that rocelab made."""
    return messages(present, ResilientState({}, {}, {}))


def _set_member(number: int, member: GroupMember) -> bytes:
    family = socket.AF_INET6 if len(member.gateway) == 16 else socket.AF_INET
    body = NHMSG.pack(family, 0, PROTOCOL, 0, 0) + attribute(NHA_ID, u32(number))
    body += attribute(NHA_OIF, u32(member.interface)) + attribute(NHA_GATEWAY, member.gateway)
    return request(RTM_NEWNEXTHOP, body, REQUEST_ACK_REPLACE)


def _set_group(number: int, group: NexthopGroup) -> bytes:
    entries = b"".join(
        GROUP_ENTRY.pack(member, weight - 1 & 0xFF, weight - 1 >> 8, 0)
        for member, weight in group.members
    )
    timers = attribute(_RES_IDLE_TIMER, u32(round(IDLE_S * _USER_HZ)))
    timers += attribute(_RES_UNBALANCED_TIMER, u32(round(UNBALANCED_S * _USER_HZ)))
    nested = attribute(NHA_RES_GROUP_BUCKETS, struct.pack("=H", group.buckets)) + timers
    body = NHMSG.pack(socket.AF_UNSPEC, 0, PROTOCOL, 0, 0) + attribute(NHA_ID, u32(number))
    body += attribute(NHA_GROUP, entries)
    body += attribute(NHA_GROUP_TYPE, struct.pack("=H", GROUP_TYPE_RESILIENT))
    body += attribute(NHA_RES_GROUP | _NESTED, nested)
    return request(RTM_NEWNEXTHOP, body, REQUEST_ACK_REPLACE)


def _delete_object(number: int) -> bytes:
    body = NHMSG.pack(socket.AF_UNSPEC, 0, 0, 0, 0) + attribute(NHA_ID, u32(number))
    return request(RTM_DELNEXTHOP, body)


def _route(place: Place) -> bytes:
    family, destination, length = place
    body = RTMSG.pack(family.number, length, 0, 0, RT_TABLE_MAIN, PROTOCOL, 0, RTN_UNICAST, 0)
    body += attribute(RTA_DST, destination.to_bytes(family.bits // 8))
    return body + attribute(RTA_PRIORITY, u32(METRIC))


def _set_route(place: Place, group: int) -> bytes:
    body = _route(place) + attribute(RTA_NH_ID, u32(group))
    return request(RTM_NEWROUTE, body, REQUEST_ACK_REPLACE)


def _delete_route(place: Place) -> bytes:
    return request(RTM_DELROUTE, _route(place))


def group_sizes(states: Sequence[ResilientState]) -> tuple[int, int]:
    """The number of groups and of routes that rocelab made in the switches."""
    return sum(len(state.groups) for state in states), sum(len(s.group_of) for s in states)
