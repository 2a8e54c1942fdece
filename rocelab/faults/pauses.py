"""Faults of lossless classes: a port that pauses for ever, one that obeys no pause, a slow NIC.

They exist where a lab has `queues.pfc`. What a port is to do is in the maps of its program
(`rocelab.dataplane.pfc`), where each fault is read back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError, MachineError
from rocelab.base.units import SHARE, SharePpm
from rocelab.base.wording import listed
from rocelab.dataplane.pfc import control
from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.faults.base import ALL_PPM, LinkFaultSpec, LinksFault, NicFaultSpec, Towards
from rocelab.faults.links import RateDegrade, check_rates
from rocelab.faults.selectors import directed, find_nic_link
from rocelab.lab.lab import RunningLab
from rocelab.labfile.pfc import MAX_CLASS
from rocelab.linux.bracket import Bracket, realtime_ns, spanning
from rocelab.plan.fabric import Fabric, Link
from rocelab.plan.pauses import PausePlan, PausePort, plan_pauses
from rocelab.record import LabFiles

EFFECT_S = 0.5
"""How long an injection waits for the first frame of a storm."""

SPARING = frozenset({"pause-storm", "pause-deaf", "slow-receiver"})
"""Faults that take no packet themselves: what is lost under them, a queue or a buffer counts."""

_LOOK_EVERY_S = 0.0005


@dataclass(frozen=True, slots=True)
class PauseStorm(LinksFault):
    """The NIC at the lower end of `links` pauses `classes`, and refreshes the pauses for ever."""

    classes: tuple[int, ...]
    kind: str = "pause-storm"

    def prepare(self, lab: RunningLab) -> None:
        """Raises MachineError if no process of the lab sends pauses."""
        _check_pausing(lab)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"{port} pauses class {number} only while its buffer is full"
            for port, stormed in self._stormed(lab)
            for number in self.classes
            if not stormed >> number & 1
        )

    def inject(self, lab: RunningLab) -> Bracket:
        """Wait until the peers have the first frames, which a process of the lab sends; a storm of
        which none arrives in EFFECT_S may begin at any time."""
        with PauseMaps(pins_folder(LabFiles(lab.name))) as maps:
            heard = {
                index: maps.egresses.get(index, "pauses") for index in self._unpaused(lab, maps)
            }
            begun = self._set(lab, lambda stormed: stormed | self._bits) or Bracket.now()
            end = time.monotonic() + EFFECT_S
            while time.monotonic() < end and any(
                maps.egresses.get(index, "pauses") == count for index, count in heard.items()
            ):
                time.sleep(_LOOK_EVERY_S)
        return Bracket(begun.before_ns, realtime_ns())

    def restore(self, lab: RunningLab) -> Bracket | None:
        return self._set(lab, lambda stormed: stormed & ~self._bits)

    def _unpaused(self, lab: RunningLab, maps: PauseMaps) -> list[int]:
        """The peers' egresses that the NIC does not pause yet."""
        return [
            port.peer * CLASSES + number
            for port, stormed in self._stormed(lab)
            for number in self.classes
            if not stormed >> number & 1
            and not maps.ingresses.get(port.slot * CLASSES + number, "over")
        ]

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        """Also where the switch does not send again yet: a resume ends a storm."""
        found = []
        with PauseMaps(pins_folder(LabFiles(lab.name))) as maps:
            for port, stormed in self._stormed(lab):
                for number in self.classes:
                    if stormed >> number & 1:
                        found.append(f"{port} pauses class {number} for ever")
                    elif maps.egresses.get(
                        port.peer * CLASSES + number, "gated"
                    ) and not maps.ingresses.get(port.slot * CLASSES + number, "over"):
                        found.append(f"class {number} towards {port} is still paused")
        return tuple(found)

    @property
    def _bits(self) -> int:
        return sum(1 << number for number in self.classes)

    def _set(self, lab: RunningLab, change: Callable[[int], int]) -> Bracket | None:
        files = LabFiles(lab.name)
        done = [
            Bracket.of(partial(control.storm, files, port.slot, change(stormed)))
            for port, stormed in self._stormed(lab)
            if change(stormed) != stormed
        ]
        return spanning(done) if done else None

    def _stormed(self, lab: RunningLab) -> list[tuple[PausePort, int]]:
        """The NIC's ports, and the classes that each storms, a bit each."""
        ports = [_port(lab, link.a.node, link) for link in self.links]
        with PauseMaps(pins_folder(LabFiles(lab.name))) as maps:
            return [(port, maps.ports.get(port.slot, "storms")) for port in ports]


@dataclass(frozen=True, slots=True)
class PauseDeaf(LinksFault):
    """Ports ignore pause frames: those that send towards one node, or both ends of `links`."""

    towards: str | None = None
    kind: str = "pause-deaf"

    def prepare(self, lab: RunningLab) -> None:
        """Raises MachineError if no process of the lab obeys pauses."""
        _check_pausing(lab)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"{port} obeys pauses" for port, is_deaf in self._hearing(lab) if not is_deaf
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return self._set(lab, deaf=True) or Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket | None:
        return self._set(lab, deaf=False)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(f"{port} ignores pauses" for port, is_deaf in self._hearing(lab) if is_deaf)

    def _set(self, lab: RunningLab, *, deaf: bool) -> Bracket | None:
        files = LabFiles(lab.name)
        done = [
            Bracket.of(partial(control.deafen, files, port.slot, deaf=deaf))
            for port, is_deaf in self._hearing(lab)
            if is_deaf != deaf
        ]
        return spanning(done) if done else None

    def _ports(self, lab: RunningLab) -> Iterator[PausePort]:
        for way in directed(self.links, self.towards):
            yield _port(lab, way.sender, way.link)

    def _hearing(self, lab: RunningLab) -> list[tuple[PausePort, bool]]:
        """The ports, and whether each ignores pauses of any class."""
        ports = list(self._ports(lab))
        with PauseMaps(pins_folder(LabFiles(lab.name))) as maps:
            return [
                (
                    port,
                    any(
                        maps.egresses.get(port.slot * CLASSES + number, "deaf")
                        for number in range(CLASSES)
                    ),
                )
                for port in ports
            ]


@dataclass(frozen=True, slots=True)
class SlowDrain(LinksFault):
    """The host of the NIC at the lower end of `links` takes packets at a share of their rate.

    The rest waits in the NIC's receive buffer (`queues.pfc.nic`), which pauses the switch above
    its XOFF.
    """

    share_ppm: int
    kind: str = "slow-receiver"

    def prepare(self, lab: RunningLab) -> None:
        """Raises InputError if the NIC drains as slowly by the lab's file, MachineError if no
        process of the lab sends pauses."""
        _check_pausing(lab)
        for port in self._ports(lab):
            own = _own_drain(port)
            if own and self.bytes_per_s(port) >= own:
                raise InputError(
                    f"{port} takes packets no faster than {SHARE.written(self.share_ppm)} of its "
                    "rate already",
                    hint="a lower rate, or a faster queues.pfc.nic.drain in the lab's file",
                )

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"the host of {port} takes packets as fast as always"
            for port, drain in self._drains(lab)
            if drain == _own_drain(port)
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return self._set(lab, self.bytes_per_s) or Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket | None:
        return self._set(lab, _own_drain)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(
            f"the host of {port} takes packets slowly"
            for port, drain in self._drains(lab)
            if drain != _own_drain(port)
        )

    def bytes_per_s(self, port: PausePort) -> int:
        """How fast the host takes packets of a port, in the lab's clock."""
        return max(1, port.rate_bps * self.share_ppm // ALL_PPM // 8)

    def _set(self, lab: RunningLab, drain: Callable[[PausePort], int]) -> Bracket | None:
        files = LabFiles(lab.name)
        done = [
            Bracket.of(partial(control.drain, files, port.slot, drain(port)))
            for port, before in self._drains(lab)
            if drain(port) != before
        ]
        return spanning(done) if done else None

    def _ports(self, lab: RunningLab) -> list[PausePort]:
        return [_port(lab, link.a.node, link) for link in self.links]

    def _drains(self, lab: RunningLab) -> list[tuple[PausePort, int]]:
        ports = self._ports(lab)
        with PauseMaps(pins_folder(LabFiles(lab.name))) as maps:
            return [(port, maps.ports.get(port.slot, "drain")) for port in ports]


def _plan(fabric: Fabric) -> PausePlan:
    """The lossless classes of a fabric. Raises InputError if it has none."""
    if fabric.observed is not None:
        raise InputError(
            f"lab {fabric.name} was adopted: its ports have no lossless classes",
            hint="loss, delay and carrier-down work on any link",
        )
    plan = plan_pauses(fabric)
    if plan is None:
        raise InputError(
            f"lab {fabric.name} has no lossless classes", hint="set queues.pfc in its file"
        )
    return plan


def _port(lab: RunningLab, node: str, link: Link) -> PausePort:
    plan = _plan(lab.fabric)
    return plan.by_slot[plan.slots[node, link.port(node).interface]]


def _own_drain(port: PausePort) -> int:
    """How fast the host of a NIC takes packets by the lab's file, bytes/s of the lab's clock; 0: as
    they come."""
    assert port.buffer is not None
    return port.buffer.drain_bps // 8


def _check_pausing(lab: RunningLab) -> None:
    if not control.is_alive(LabFiles(lab.name)):
        raise MachineError(
            f"the process that sends the pauses of lab {lab.name} has ended",
            hint=f"see {control.log_file(LabFiles(lab.name))}; bring the lab down and up again",
        )


class PauseStormSpec(NicFaultSpec):
    """A NIC pauses its switch for ever, as one does whose receive path has hung."""

    kind: Literal["pause-storm"]
    classes: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MAX_CLASS)], ...],
        Field(
            strict=False,
            max_length=MAX_CLASS + 1,
            description="which lossless classes; if left out, all of the lab's",
        ),
    ] = ()

    def resolve(self, fabric: Fabric) -> PauseStorm:
        lossless = _plan(fabric).pfc.classes
        find_nic_link(fabric, self.server, self.nic, 1)
        other = [str(number) for number in self.classes if number not in lossless]
        if other:
            raise InputError(
                f"class {listed(other)} of lab {fabric.name} is not lossless",
                hint=f"its lossless classes: {', '.join(map(str, lossless))}",
            )
        links = fabric.nics(self.server)[self.nic - 1].links
        return PauseStorm(links, tuple(sorted(set(self.classes))) or lossless)


class PauseDeafSpec(LinkFaultSpec):
    """A port ignores pauses: its peer's headroom overflows. A server's port is a NIC."""

    kind: Literal["pause-deaf"]
    towards: Towards = None

    def resolve(self, fabric: Fabric) -> PauseDeaf:
        _plan(fabric)
        return PauseDeaf(self.find(fabric, self.towards), self.towards)


class SlowReceiverSpec(NicFaultSpec):
    """A NIC takes packets slowly, as when its host's memory does. With `queues.pfc` its receive
    buffer fills and pauses the switch; without, this is the rate of the switch's port."""

    kind: Literal["slow-receiver"]
    rate: Annotated[SharePpm, Field(gt=0, lt=ALL_PPM, description="of the NIC's own")] = (
        ALL_PPM // 4
    )

    def resolve(self, fabric: Fabric) -> RateDegrade | SlowDrain:
        check_rates(fabric)
        find_nic_link(fabric, self.server, self.nic, 1)
        links = fabric.nics(self.server)[self.nic - 1].links
        if plan_pauses(fabric) is not None:
            return SlowDrain(links, self.rate)
        return RateDegrade(links, self.rate, self.server, kind=self.kind)
