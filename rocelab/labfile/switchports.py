"""What a port of a switch has by its switch's profile: limits, marking lines, weights, pauses.

A kit's traffic class is a queue of the switch: DSCPs map to it through DSCP_TO_TC_MAP and
TC_TO_QUEUE_MAP. The kit has eight; `rocelab.planning.profiles` says what it leaves out. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil

from rocelab.labfile.base import MS
from rocelab.labfile.marking import MAX_BUFFER, EcnSpec
from rocelab.labfile.pfc import MAX_WATCHDOG, PfcSpec, WatchdogAction, WatchdogSpec
from rocelab.labfile.profile import (
    BufferProfileSpec,
    PoolMode,
    PoolSpec,
    PortsSpec,
    ProfileSpec,
    QueueRow,
    SchedulerType,
)

CLASSES = 8
LOSSLESS_POOL = "ingress_lossless_pool"
"""The pool of the profiles that SONiC makes of the rows of pg_profile_lookup.ini (buffermgr)."""
NS_PER_METRE = 5
LEAST_PMAX = 2.0**-31
NO_OFFSET = 2**40
"""The xon_offset of a group that has none: its resume comes at `xon`, however high XOFF is."""


@dataclass(frozen=True, slots=True)
class PlaceOfPort:
    """What decides which of a switch's settings a port has."""

    role: str
    rate_bps: int
    cable_ns: int | None = None
    """One way, modelled; None: the lab does not say."""
    name: str = ""
    link: str | None = None
    """The settings that its link names."""

    def metres(self, kind: PortsSpec, usual_ns: int) -> int:
        """The length of its cable: the lab's, else the switch's, else the usual one."""
        if self.cable_ns is None and kind.cable_m:
            return kind.cable_m
        return ceil((usual_ns if self.cable_ns is None else self.cable_ns) / NS_PER_METRE)


@dataclass(frozen=True, slots=True)
class PauseLine:
    """A lossless priority group of a port, in bytes."""

    name: str
    """Of its profile in the files."""
    reserved: int
    headroom: int
    xon: int
    xon_offset: int
    dynamic_th: int | None
    xoff: int | None
    """A static threshold, where dynamic_th is None."""
    is_dedicated: bool
    """Its headroom is its own, not of the shared pool."""
    speed_mbps: int | None = None
    """Of the row of the lookup, if it has one."""
    cable_m: int | None = None
    """Of the row of the lookup, if it has one."""


@dataclass(frozen=True, slots=True)
class LosslessMemory:
    """What a switch has for lossless classes, in bytes: shared, and headroom that ports share."""

    pool: str
    shared: int
    headroom: int


def kind_of(profile: ProfileSpec, place: PlaceOfPort | None = None) -> PortsSpec:
    """The settings of a port: of that of its name, else of most ports of its speed, else of most.

    Ports with all tables go first: those of management have none, or some.
    """
    if place is not None and place.name:
        for kind in profile.kinds:
            if place.name in kind.ports:
                return kind
    speed = 0 if place is None else place.rate_bps // 10**6

    def fitness(kind: PortsSpec) -> tuple[bool, bool, bool, int]:
        has_buffers = any(row.buffer for row in kind.queues)
        return (kind.speed_mbps == speed, bool(kind.pfc), has_buffers, len(kind.ports))

    return max(profile.kinds, key=fitness, default=PortsSpec())


def class_of_dscp(profile: ProfileSpec, kind: PortsSpec) -> tuple[int, ...] | None:
    """The queue of each DSCP, as a class of the kit; None if the files map none."""
    tc_of = profile.dscp_to_tc.get(kind.dscp_to_tc)
    if tc_of is None and len(profile.dscp_to_tc) == 1:
        (tc_of,) = profile.dscp_to_tc.values()
    if tc_of is None:
        return None
    return tuple(_class(profile, kind, tc) for tc in tc_of)


def classes_of_tc(profile: ProfileSpec, kind: PortsSpec) -> dict[int, int]:
    """The class of each traffic class (TC) of the switch that some DSCP has."""
    tc_of = profile.dscp_to_tc.get(kind.dscp_to_tc, tuple(range(CLASSES)))
    return {tc: _class(profile, kind, tc) for tc in sorted(set(tc_of))}


def _class(profile: ProfileSpec, kind: PortsSpec, tc: int) -> int:
    queue = _mapped(profile.tc_to_queue, kind.tc_to_queue, tc)
    return queue if queue < CLASSES else min(tc, CLASSES - 1)


def _mapped(maps: Mapping[str, tuple[int, ...]], name: str, number: int) -> int:
    """What a map makes of a number; the number itself without one."""
    chosen = maps.get(name)
    if chosen is None and len(maps) == 1:
        (chosen,) = maps.values()
    return number if chosen is None or number >= len(chosen) else chosen[number]


def queue_rows(kind: PortsSpec) -> dict[int, QueueRow]:
    """The rows of the queues that are classes of the kit."""
    return {row.queue: row for row in kind.queues if row.queue < CLASSES}


def limits(profile: ProfileSpec, kind: PortsSpec) -> dict[int, int]:
    """The most that each class of the port holds, in bytes, while nothing else is held."""
    sizes = {}
    for number, row in queue_rows(kind).items():
        limit = limit_of(profile, row.buffer)
        if limit is not None:
            sizes[number] = limit
    return sizes


def limit_of(profile: ProfileSpec, name: str) -> int | None:
    """What a buffer profile lets a queue hold that is alone; None if the files do not say."""
    buffer = profile.buffers.get(name)
    if buffer is None:
        return None
    pool = profile.pools.get(buffer.pool)
    if buffer.static_th is not None:
        held = buffer.static_th
    elif pool is not None and pool.size is not None and buffer.dynamic_th is not None:
        share = 2.0**buffer.dynamic_th
        held = round(pool.size * share / (1 + share))
    else:
        return None
    return min(MAX_BUFFER, max(1, buffer.size + held))


def lines(profile: ProfileSpec, kind: PortsSpec) -> dict[int, EcnSpec]:
    """The marking line of each class that is marked."""
    return {
        number: line
        for number, row in queue_rows(kind).items()
        if (line := _line(profile, row.wred)) is not None
    }


def _line(profile: ProfileSpec, name: str) -> EcnSpec | None:
    wred = profile.wred.get(name)
    if wred is None or not wred.marks:
        return None
    kmin = min(MAX_BUFFER - 1, max(1, wred.kmin))
    return EcnSpec.model_construct(
        kmin=kmin,
        kmax=min(MAX_BUFFER, max(kmin + 1, wred.kmax)),
        pmax=min(1.0, max(LEAST_PMAX, wred.percent / 100)),
    )


def weights(profile: ProfileSpec, kind: PortsSpec) -> tuple[int, ...]:
    """What each class gets of the rate that strict ones leave, in proportion; 0: it is strict."""
    shares = [1] * CLASSES
    for number, row in queue_rows(kind).items():
        scheduler = profile.schedulers.get(row.scheduler)
        if scheduler is not None:
            is_strict = scheduler.type is SchedulerType.STRICT
            shares[number] = 0 if is_strict else scheduler.weight
    return tuple(shares)


def pauses(
    profile: ProfileSpec, kind: PortsSpec, classes: Iterable[int], mbps: int, metres: int
) -> PauseLine | None:
    """The priority group of the first of the lossless classes that has one, or the row of the
    lookup for a speed and cable; None if the files have neither."""
    rows = {row.group: row.buffer for row in kind.groups}
    for number in classes:
        name = rows.get(group_of(profile, kind, number), "")
        buffer = profile.buffers.get(name)
        if buffer is not None and buffer.xoff is not None:
            return _buffer_line(profile, name, buffer)
    return _lookup_line(profile, mbps, metres)


def group_of(profile: ProfileSpec, kind: PortsSpec, traffic_class: int) -> int:
    """The priority group of a class of the kit."""
    tcs = [tc for tc, number in classes_of_tc(profile, kind).items() if number == traffic_class]
    tc = traffic_class if traffic_class in tcs or not tcs else tcs[0]
    return _mapped(profile.tc_to_group, kind.tc_to_group, tc)


def _buffer_line(profile: ProfileSpec, name: str, buffer: BufferProfileSpec) -> PauseLine:
    headroom = buffer.xoff or 0
    is_dedicated = buffer.size >= headroom
    return PauseLine(
        name=name,
        reserved=buffer.size - headroom if is_dedicated else buffer.size,
        headroom=headroom,
        xon=buffer.xon,
        xon_offset=NO_OFFSET if buffer.xon_offset is None else buffer.xon_offset,
        dynamic_th=buffer.dynamic_th if buffer.static_th is None else None,
        xoff=buffer.static_th,
        is_dedicated=is_dedicated,
    )


def _lookup_line(profile: ProfileSpec, mbps: int, metres: int) -> PauseLine | None:
    """The row of the speed, or of the next higher one, and of the shortest cable that is as long,
    else of the longest."""
    speed = min((row.speed_mbps for row in profile.lookup if row.speed_mbps >= mbps), default=None)
    rows = [row for row in profile.lookup if row.speed_mbps == speed]
    if not rows:
        return None
    long_enough = [row for row in rows if row.cable_m >= metres]
    row = min(long_enough, key=lambda row: row.cable_m) if long_enough else rows[-1]
    pool = profile.pools.get(LOSSLESS_POOL)
    is_static = pool is not None and pool.mode is PoolMode.STATIC
    is_dedicated = row.size >= row.xoff
    return PauseLine(
        name=row.name,
        reserved=row.size - row.xoff if is_dedicated else row.size,
        headroom=row.xoff,
        xon=row.xon,
        xon_offset=NO_OFFSET if row.xon_offset is None else row.xon_offset,
        dynamic_th=None if is_static else row.threshold,
        xoff=row.threshold if is_static else None,
        is_dedicated=is_dedicated,
        speed_mbps=row.speed_mbps,
        cable_m=row.cable_m,
    )


def memory(profile: ProfileSpec) -> LosslessMemory | None:
    """What the files give lossless classes of a switch; None if they do not say.

    The size of a pool includes its shared headroom where the egress pool, through which the same
    packets leave, is too small for both.
    """
    ingress = {
        name: pool
        for name, pool in profile.pools.items()
        if pool.type in ("ingress", "both") and pool.size
    }
    name = LOSSLESS_POOL if LOSSLESS_POOL in ingress else next(iter(ingress), None)
    if name is None:
        return None
    pool = ingress[name]
    size = pool.size or 0
    whole = max(size, *(_sizes_beside(profile, name)), 0)
    return LosslessMemory(name, max(1, min(size, whole - pool.xoff)), pool.xoff)


def _sizes_beside(profile: ProfileSpec, ingress: str) -> list[int]:
    """The sizes of egress pools of lossless packets."""
    name = ingress.replace("ingress", "egress")

    def is_lossless(other: str, pool: PoolSpec) -> bool:
        return pool.type == "egress" and (other == name or "lossless" in other)

    return [
        pool.size or 0 for other, pool in profile.pools.items() if is_lossless(other, pool)
    ] or [0]


def usual_settings(profile: ProfileSpec) -> dict[str, object]:
    """The keys of `queues` in a lab's file that the files decide, as most ports have them."""
    kind = kind_of(profile)
    usual: dict[str, object] = {}
    mapped = class_of_dscp(profile, kind)
    if mapped is not None:
        usual["dscp"] = dict(enumerate(mapped))
    marking = lines(profile, kind)
    if profile.wred or kind.queues:
        usual["marked"] = tuple(sorted(marking))
    lossless = lossless_classes(kind)
    marked = [number for number in marking if number in lossless] or list(marking)
    if marked:
        usual["ecn"] = marking[marked[0]]
    sizes = [size for number, size in limits(profile, kind).items() if number not in lossless]
    if sizes:
        usual["buffer"] = sizes[0]
    if lossless:
        usual["pfc"] = PfcSpec().model_copy(update=usual_pfc(profile))
    return usual


def usual_pfc(profile: ProfileSpec) -> dict[str, object]:
    """The keys of `queues.pfc` in a lab's file that the files decide for all ports."""
    kind = kind_of(profile)
    usual: dict[str, object] = {}
    lossless = lossless_classes(kind)
    if lossless:
        usual["classes"] = lossless
    row = kind.watchdog
    if row is not None and row.action in tuple(WatchdogAction):
        usual["watchdog"] = WatchdogSpec.model_construct(
            detection=row.detection_ms * MS,
            restoration=min(MAX_WATCHDOG, max(1, row.restoration_ms) * MS),
            action=WatchdogAction(row.action),
        )
    return usual


def lossless_classes(kind: PortsSpec) -> tuple[int, ...]:
    """The classes of the kit that are paused: the priorities of pfc_enable."""
    return tuple(sorted(number for number in set(kind.pfc) if number < CLASSES))
