"""What each port of a lab has: the keys of `queues`, its role's and its link's, and its profile.

A key that a lab's file gives wins over a profile, at a link over its role over the fabric; where
none does, a port has what its switch's profile gives it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from rocelab.labfile.marking import EcnSpec
from rocelab.labfile.pfc import USUAL_DYNAMIC_TH, PfcSpec
from rocelab.labfile.profile import ProfileSpec
from rocelab.labfile.queues import TRAFFIC_CLASSES, PortPfcSpec, PortQueuesSpec, QueuesSpec
from rocelab.labfile.switchports import (
    LosslessMemory,
    PauseLine,
    PlaceOfPort,
    kind_of,
    limits,
    lines,
    memory,
    pauses,
    usual_settings,
    weights,
)

STRICT_CLASSES = (7, 6, 5)
"""The classes with strict priority where no profile says otherwise, in descending order."""

USUAL_CABLE_NS = 200
"""40 m of fibre, or of copper, at two thirds of the speed of light."""


@dataclass(frozen=True, slots=True)
class ClassQueues:
    """The queues of a port, by traffic class."""

    buffer_bytes: tuple[int, ...]
    """The most that each holds."""
    lines: tuple[EcnSpec | None, ...]
    """Where each is marked; None: never."""
    weights: tuple[int, ...]
    """The share of each of what strict classes leave."""


@dataclass(frozen=True, slots=True)
class PortPauses:
    """A lossless class of a port, in bytes. Thresholds are of what it holds beyond `reserved`."""

    reserved: int
    dynamic_th: int
    """XOFF is 2^dynamic_th of what is free, unless it is static."""
    xoff: int
    """A static threshold; 0: it is dynamic."""
    xon: int
    """A resume comes at this, or at `xon_offset` below XOFF if that is more."""
    xon_offset: int
    headroom: int | None
    """None: what the link needs."""
    is_dedicated: bool
    """Whether the headroom is the port's own."""
    row: str = ""
    """The profile's."""


class PortSettings:
    """What the ports of a lab's switches have, by `queues` of its file. Each place is worked out
    once."""

    def __init__(self, queues: QueuesSpec) -> None:
        self.spec = queues
        self._queues: dict[PlaceOfPort, ClassQueues] = {}
        self._pauses: dict[PlaceOfPort, PortPauses | None] = {}

    @property
    def is_uniform(self) -> bool:
        """Whether all ports have the same."""
        return self.spec.profile is None and not self.spec.roles and not self.spec.links

    @cached_property
    def reference(self) -> ProfileSpec | None:
        """The profile that decides what is the same at all ports: the fabric's, else a role's."""
        if self.spec.profile is not None:
            return self.spec.profile
        return next((role.profile for role in self.spec.roles.values() if role.profile), None)

    @cached_property
    def strict_classes(self) -> tuple[int, ...]:
        """The classes that go before all others, in descending order."""
        if self.reference is None:
            return STRICT_CLASSES
        shares = weights(self.reference, kind_of(self.reference))
        return tuple(number for number in reversed(range(TRAFFIC_CLASSES)) if shares[number] == 0)

    def place(self, place: PlaceOfPort) -> PlaceOfPort:
        """The place without a name that no profile has."""
        return place if not place.name or place.name in self._names else replace(place, name="")

    def queues(self, place: PlaceOfPort) -> ClassQueues:
        """The queues of a port."""
        place = self.place(place)
        if place not in self._queues:
            self._queues[place] = self._queues_of(place)
        return self._queues[place]

    def pauses(self, place: PlaceOfPort) -> PortPauses | None:
        """The lossless classes of a switch's port; None without any."""
        place = self.place(place)
        if place not in self._pauses:
            self._pauses[place] = self._pauses_of(place)
        return self._pauses[place]

    def profile(self, place: PlaceOfPort) -> ProfileSpec | None:
        """The profile of a port: its link's, its role's or the fabric's."""
        parts = (part.profile for part in self._parts(place))
        return next((profile for profile in parts if profile is not None), self.spec.profile)

    def pfc(self, place: PlaceOfPort) -> PfcSpec | None:
        """`queues.pfc` with what differs at a port."""
        pfc = self.spec.pfc
        if pfc is None:
            return None
        changes: dict[str, object] = {}
        for part in reversed(list(self._parts(place))):
            if part.pfc is not None:
                changes |= _differing(part.pfc)
        return pfc.model_copy(update=changes) if changes else pfc

    def memory(self, role: str) -> LosslessMemory | None:
        """What the profile of a role's switches gives lossless classes; None if none says, or if
        the lab's file has a memory of its own."""
        place = PlaceOfPort(role, 0)
        pfc, profile = self.pfc(place), self.profile(place)
        if pfc is None or profile is None or pfc.memory != _default("memory"):
            return None
        return memory(profile)

    def oversubscription(self, role: str) -> float:
        """All ports' headroom : the pool that they share for it, where no pool has a size."""
        place = PlaceOfPort(role, 0)
        pfc, profile = self.pfc(place), self.profile(place)
        if pfc is None:
            return 1.0
        if pfc.oversubscription == 1.0 and profile is not None and profile.oversubscription:
            return max(1.0, profile.oversubscription)
        return pfc.oversubscription

    def line(self, place: PlaceOfPort) -> PauseLine | None:
        """The row of the profile that lossless classes of a port have; None if it has none."""
        profile, pfc = self.profile(place), self.spec.pfc
        if profile is None or pfc is None:
            return None
        kind = kind_of(profile, place)
        metres = place.metres(kind, USUAL_CABLE_NS)
        return pauses(profile, kind, pfc.classes, place.rate_bps // 10**6, metres)

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names of ports in all profiles."""
        blocks = (*self.spec.roles.values(), *self.spec.links.values())
        profiles = [self.spec.profile, *(block.profile for block in blocks)]
        return frozenset(
            name
            for profile in profiles
            if profile is not None
            for kind in profile.kinds
            for name in kind.ports
        )

    @cached_property
    def _usual(self) -> dict[str, object]:
        return {} if self.reference is None else usual_settings(self.reference)

    def _parts(self, place: PlaceOfPort) -> Iterator[PortQueuesSpec]:
        """What differs at a port, at its link first."""
        if place.link is not None and place.link in self.spec.links:
            yield self.spec.links[place.link]
        if place.role in self.spec.roles:
            yield self.spec.roles[place.role]

    def _queues_of(self, place: PlaceOfPort) -> ClassQueues:
        profile, spec = self.profile(place), self.spec
        kind = None if profile is None else kind_of(profile, place)
        buffer, ecn, marked = (self._chosen(place, key) for key in ("buffer", "ecn", "marked"))
        sizes = {} if profile is None or kind is None or buffer else limits(profile, kind)
        marking = {} if profile is None or kind is None else lines(profile, kind)
        shares = (1,) * TRAFFIC_CLASSES
        if profile is not None and kind is not None:
            shares = tuple(max(1, share) for share in weights(profile, kind))
        numbers = spec.marked
        if isinstance(marked, tuple):
            numbers = marked
        elif profile is not None and kind is not None and (profile.wred or kind.queues):
            numbers = tuple(marking)
        size = buffer if isinstance(buffer, int) else spec.buffer
        line = ecn if isinstance(ecn, EcnSpec) else None
        return ClassQueues(
            buffer_bytes=tuple(sizes.get(number, size) for number in range(TRAFFIC_CLASSES)),
            lines=tuple(
                (line or marking.get(number, spec.ecn)) if number in numbers else None
                for number in range(TRAFFIC_CLASSES)
            ),
            weights=shares,
        )

    def _chosen(self, place: PlaceOfPort, key: str) -> object:
        """What a lab's file says of a port, None for what its profile does."""
        values = (getattr(part, key) for part in self._parts(place))
        value = next((value for value in values if value is not None), None)
        if value is not None:
            return value
        value = getattr(self.spec, key)
        is_usual = self.profile(place) is not None and value == self._usual.get(key, value)
        return None if is_usual else value

    def _pauses_of(self, place: PlaceOfPort) -> PortPauses | None:
        pfc, line = self.pfc(place), self.line(place)
        if pfc is None:
            return None
        if line is None:
            return PortPauses(
                reserved=pfc.reserved,
                dynamic_th=pfc.dynamic_th,
                xoff=pfc.xoff or 0,
                xon=0,
                xon_offset=pfc.xon_offset,
                headroom=pfc.headroom,
                is_dedicated=False,
            )
        xoff, dynamic_th = line.xoff or 0, line.dynamic_th or 0
        if line.dynamic_th is not None:
            xoff = 0
        if pfc.xoff is not None:
            xoff = pfc.xoff
        elif pfc.dynamic_th != USUAL_DYNAMIC_TH:
            xoff, dynamic_th = 0, pfc.dynamic_th
        reserved = pfc.reserved or line.reserved
        is_usual = pfc.xon_offset == _default("xon_offset")
        return PortPauses(
            reserved=reserved,
            dynamic_th=dynamic_th,
            xoff=xoff,
            xon=max(0, line.xon - reserved) if is_usual else 0,
            xon_offset=line.xon_offset if is_usual else pfc.xon_offset,
            headroom=pfc.headroom or line.headroom,
            is_dedicated=line.is_dedicated,
            row=line.name,
        )


def _default(key: str) -> object:
    return PfcSpec.model_fields[key].default


def _differing(pfc: PortPfcSpec) -> dict[str, object]:
    """The keys of a block that are there; a dynamic threshold takes a static one's place."""
    keys = {name: getattr(pfc, name) for name in PortPfcSpec.model_fields}
    differs = {name: value for name, value in keys.items() if value is not None}
    return {"xoff": None, **differs} if "dynamic_th" in differs else differs
