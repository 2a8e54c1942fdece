"""The switch profiles of a fabric: what each kind of port takes from its profile, by the files'
names, and what a lab and the packet engine do instead where they are coarser. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rocelab.base import quantities
from rocelab.base.wording import listed
from rocelab.labfile.marking import EcnSpec
from rocelab.labfile.portsettings import USUAL_CABLE_NS, PortSettings
from rocelab.labfile.profile import PortsSpec, ProfileSpec
from rocelab.labfile.queues import TRAFFIC_CLASSES, QueuesSpec
from rocelab.labfile.switchports import (
    NO_OFFSET,
    PauseLine,
    PlaceOfPort,
    class_of_dscp,
    kind_of,
    limit_of,
    lossless_classes,
    memory,
    queue_rows,
    usual_settings,
    weights,
)
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import place_of


@dataclass(frozen=True, slots=True)
class QueueOfPort:
    """A queue of a kind of port, by the files' names."""

    queue: int
    dscps: int
    """How many DSCPs it has."""
    buffer: str
    limit: int | None
    """The most that it holds, in bytes, while nothing else is held; None: the files do not say."""
    scheduler: str
    weight: int
    """0: strict."""
    wred: str
    line: EcnSpec | None
    """Where it is marked."""


@dataclass(frozen=True, slots=True)
class PortsByProfile:
    """Ports of a role at a rate that take the same from one profile."""

    place: PlaceOfPort
    ports: int
    profile: ProfileSpec
    like: str
    """A port of the switch with these settings; empty: the files name none."""
    queues: tuple[QueueOfPort, ...]
    group: PauseLine | None
    """Of lossless classes."""

    @property
    def title(self) -> str:
        """`400 Gb/s ports of rtsw`."""
        link = f" on links {self.place.link}" if self.place.link else ""
        return f"{quantities.rate(self.place.rate_bps)} ports of {self.place.role}{link}"

    @property
    def has_no_offset(self) -> bool:
        """Whether its lossless classes resume at `xon` alone."""
        return self.group is not None and self.group.xon_offset == NO_OFFSET


def ports_by_profile(fabric: Fabric) -> tuple[PortsByProfile, ...]:
    """What each kind of port takes from its profile, in the order of the links; empty without."""
    settings = PortSettings(fabric.spec.queues)
    if settings.is_uniform:
        return ()
    counts: dict[PlaceOfPort, int] = {}
    for link in fabric.links:
        for end in (link.a, link.b):
            if end.role.is_switch:
                place = settings.place(place_of(link, end))
                counts[place] = counts.get(place, 0) + 1
    return tuple(
        _place_lines(settings, place, count, profile)
        for place, count in counts.items()
        if (profile := settings.profile(place)) is not None
    )


def _place_lines(
    settings: PortSettings, place: PlaceOfPort, count: int, profile: ProfileSpec
) -> PortsByProfile:
    kind = kind_of(profile, place)
    dscps = class_of_dscp(profile, kind) or tuple(
        settings.spec.dscp.get(n, n >> 3) for n in range(64)
    )
    rows, queues, shares = queue_rows(kind), settings.queues(place), weights(profile, kind)
    return PortsByProfile(
        place=place,
        ports=count,
        profile=profile,
        like=place.name or next(iter(kind.ports), ""),
        queues=tuple(
            QueueOfPort(
                queue=number,
                dscps=dscps.count(number),
                buffer=row.buffer,
                limit=limit_of(profile, row.buffer),
                scheduler=row.scheduler,
                weight=shares[number],
                wred=row.wred,
                line=queues.lines[number],
            )
            for number, row in rows.items()
        ),
        group=settings.line(place),
    )


def coarser(fabric: Fabric) -> tuple[str, ...]:
    """What a lab and the packet engine do instead of what profiles say, and what a lab's file says
    instead."""
    settings = PortSettings(fabric.spec.queues)
    kinds = ports_by_profile(fabric)
    notes: list[str] = []
    for profile in {kind.profile.name: kind.profile for kind in kinds}.values():
        notes += (f"{profile.name}: {note}" for note in _profile_lines(settings, profile))
    for kind in kinds:
        notes += (f"{kind.title}: {note}" for note in _port_lines(settings, kind))
    if kinds:
        notes += _fabric_lines(settings)
    return tuple(dict.fromkeys(notes))


def profile_conflicts(spec: QueuesSpec) -> tuple[str, ...]:
    """Where profiles of a lab disagree in what is one for all of its ports: of each profile beside
    the one that counts."""
    settings = PortSettings(spec)
    blocks = (*spec.roles.values(), *spec.links.values())
    profiles = {block.profile.name: block.profile for block in blocks if block.profile is not None}
    return tuple(
        f"{profile.name}: {note}"
        for profile in profiles.values()
        if profile is not settings.reference
        for note in _against_reference(settings, profile)
    )


def _fabric_lines(settings: PortSettings) -> Iterator[str]:
    spec, reference = settings.spec, settings.reference
    if reference is not None:
        overriding = _overriding(spec, usual_settings(reference))
        if overriding:
            yield f"the lab's file has {listed(overriding, 'and')}, for every port"
    if spec.pfc is None:
        yield "each lossy class of a port has its limit of the port's memory, not of the switch's"
        return
    yield (
        "each class that is not lossless has its limit at each port to itself: what other ports "
        "and classes hold takes nothing of it"
    )
    yield "lossless classes are limited at ingress only, by their priority groups"


def _overriding(spec: QueuesSpec, usual: dict[str, object]) -> list[str]:
    keys = [
        f"queues.{key}" for key in ("buffer", "ecn", "marked", "dscp") if _differs(spec, usual, key)
    ]
    if spec.pfc is not None:
        names = ("memory", "reserved", "dynamic_th", "xoff", "xon_offset", "headroom")
        keys += spec.pfc.changed("queues.pfc", *names, "oversubscription")
    return keys


def _differs(spec: QueuesSpec, usual: dict[str, object], key: str) -> bool:
    return key in usual and getattr(spec, key) != usual[key]


def _against_reference(settings: PortSettings, profile: ProfileSpec) -> Iterator[str]:
    """What a profile says otherwise than the one whose word counts for all ports."""
    kind, reference = kind_of(profile), settings.reference
    assert reference is not None
    usual = kind_of(reference)
    if class_of_dscp(profile, kind) != class_of_dscp(reference, usual):
        yield f"its map of DSCPs is not used: all ports have that of {reference.name}"
    if _strict(profile, kind) != _strict(reference, usual):
        yield f"its strict queues are not used: all ports have those of {reference.name}"
    if settings.spec.pfc is None:
        return
    if lossless_classes(kind) != lossless_classes(usual):
        yield f"its pfc_enable is not used: all ports have that of {reference.name}"
    if kind.watchdog != usual.watchdog:
        yield f"its PFC_WD is not used: all ports have that of {reference.name}"


def _profile_lines(settings: PortSettings, profile: ProfileSpec) -> Iterator[str]:
    kind, pfc = kind_of(profile), settings.spec.pfc
    if profile is not settings.reference:
        yield from _against_reference(settings, profile)
    elif pfc is not None and (lossless := lossless_classes(kind)) != pfc.classes:
        classes = listed(map(str, pfc.classes), "and")
        whole = listed(map(str, lossless), "and") if lossless else "none"
        yield f"pfc_enable is {whole}, and every port pauses classes {classes}"
    yield from _pool_lines(profile, settings)
    beyond = sorted({row.queue for row in kind.queues if row.queue >= TRAFFIC_CLASSES})
    if beyond:
        yield f"queues {listed(map(str, beyond), 'and')} are left out: ports have queues 0 to 7"
    dropping = [name for name, wred in profile.wred.items() if not wred.marks]
    if dropping:
        yield f"{listed(dropping, 'and')} drops early: here queues drop only what does not fit"
    shaped = [name for name, scheduler in profile.schedulers.items() if scheduler.is_shaped]
    if shaped:
        yield f"{listed(shaped, 'and')} limits rates: here queues have no limit of their own"
    if kind.watchdog is not None and kind.watchdog.action == "alert":
        yield "PFC_WD only alerts: there is no watchdog"
    if profile.unused:
        yield f"not used: {listed(profile.unused, 'and')}"


def _pool_lines(profile: ProfileSpec, settings: PortSettings) -> Iterator[str]:
    if settings.spec.pfc is None:
        return
    shared = memory(profile)
    if shared is None:
        yield (
            "no ingress pool has a size: lossless classes share queues.pfc.memory "
            f"({quantities.size(settings.spec.pfc.memory)}) for each port"
        )
        return
    pool = profile.pools[shared.pool]
    if shared.shared < (pool.size or 0):
        yield (
            f"the size of {shared.pool} includes its xoff: {quantities.size(shared.shared)} are "
            f"shared, and {quantities.size(shared.headroom)} are headroom"
        )
    yield (f"{shared.pool} is the lab's switch's, however few ports it has beside the real one's")


def _strict(profile: ProfileSpec, kind: PortsSpec) -> tuple[int, ...]:
    return tuple(n for n, share in enumerate(weights(profile, kind)) if share == 0)


def _port_lines(settings: PortSettings, kind: PortsByProfile) -> Iterator[str]:
    pfc, place = settings.pfc(kind.place), kind.place
    ports = kind_of(kind.profile, place)
    silent = [row.queue for row in queue_rows(ports).values() if not row.scheduler]
    if silent:
        yield f"queues without a scheduler ({listed(map(str, silent), 'and')}) have a weight of 1"
    if pfc is None:
        return
    groups = {row.group: row.buffer for row in ports.groups if row.buffer}
    names = {groups.get(number, "") for number in pfc.classes}
    if len(names) > 1:
        yield "all lossless classes have the priority group of the first"
    line, metres = kind.group, place.metres(ports, USUAL_CABLE_NS)
    mbps = place.rate_bps // 10**6
    if line is None:
        yield "the files have no priority group for it: headroom is what links need"
    elif line.speed_mbps not in (None, mbps):
        yield f"the lookup has no speed of {mbps}: it takes the row of {line.speed_mbps}"
    elif line.cable_m is not None and line.cable_m < metres:
        yield f"the lookup's longest cable is {line.cable_m} m, and its own is {metres} m"
    elif line.cable_m is not None and line.cable_m > metres:
        yield f"the lookup has no cable of {metres} m: it takes the row of {line.cable_m} m"
