"""A NIC that pauses its switch for ever."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from rocelab.base.errors import InputError
from rocelab.base.wording import listed
from rocelab.dataplane.pfc import control
from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.faults.base import LinksFault, NicFaultSpec
from rocelab.faults.pauses import (
    check_pausing,
    lossless_plan,
    network_of_links,
    pause_files,
    pause_port,
)
from rocelab.faults.selectors import find_nic_link
from rocelab.lab.lab import RunningLab
from rocelab.labfile.pfc import MAX_CLASS
from rocelab.linux.bracket import Bracket, realtime_ns, spanning
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePort

EFFECT_S = 0.5
"""How long an injection waits for the first frame of a storm."""


_LOOK_EVERY_S = 0.0005


@dataclass(frozen=True, slots=True)
class PauseStorm(LinksFault):
    """The NIC at the lower end of `links` pauses `classes`, and refreshes the pauses for ever."""

    classes: tuple[int, ...]
    kind: str = "pause-storm"

    def prepare(self, lab: RunningLab) -> None:
        """Raises MachineError if no process of the lab sends pauses."""
        check_pausing(lab, self.links)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"{port} pauses class {number} only while its buffer is full"
            for port, stormed in self._storm_ports(lab)
            for number in self.classes
            if not stormed >> number & 1
        )

    def inject(self, lab: RunningLab) -> Bracket:
        """Wait until the peers have the first frames, which a process of the lab sends; a storm of
        which none arrives in EFFECT_S may begin at any time."""
        with PauseMaps(pins_folder(pause_files(lab, self.links))) as maps:
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
            for port, stormed in self._storm_ports(lab)
            for number in self.classes
            if not stormed >> number & 1
            and not maps.ingresses.get(port.slot * CLASSES + number, "over")
        ]

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        """Also where the switch does not send again yet: a resume ends a storm."""
        remains = []
        with PauseMaps(pins_folder(pause_files(lab, self.links))) as maps:
            for port, stormed in self._storm_ports(lab):
                for number in self.classes:
                    if stormed >> number & 1:
                        remains.append(f"{port} pauses class {number} for ever")
                    elif maps.egresses.get(
                        port.peer * CLASSES + number, "gated"
                    ) and not maps.ingresses.get(port.slot * CLASSES + number, "over"):
                        remains.append(f"class {number} towards {port} is still paused")
        return tuple(remains)

    @property
    def _bits(self) -> int:
        return sum(1 << number for number in self.classes)

    def _set(self, lab: RunningLab, change: Callable[[int], int]) -> Bracket | None:
        files = pause_files(lab, self.links)
        done = [
            Bracket.of(partial(control.storm, files, port.slot, change(stormed)))
            for port, stormed in self._storm_ports(lab)
            if change(stormed) != stormed
        ]
        return spanning(done) if done else None

    def _storm_ports(self, lab: RunningLab) -> list[tuple[PausePort, int]]:
        """The NIC's ports, and the classes that each storms, a bit each."""
        ports = [pause_port(lab, link.a.node, link) for link in self.links]
        with PauseMaps(pins_folder(pause_files(lab, self.links))) as maps:
            return [(port, maps.ports.get(port.slot, "storms")) for port in ports]


class PauseStormSpec(NicFaultSpec):
    """A NIC pauses its switch for ever, as one does whose receive path has hung."""

    spares_packets = True
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
        link = find_nic_link(fabric, self.server, self.nic, 1)
        lossless = lossless_plan(network_of_links(fabric, [link])).pfc.classes
        other = [str(number) for number in self.classes if number not in lossless]
        if other:
            raise InputError(
                f"class {listed(other)} of lab {fabric.name} is not lossless",
                hint=f"its lossless classes: {', '.join(map(str, lossless))}",
            )
        links = fabric.nics(self.server)[self.nic - 1].links
        return PauseStorm(links, tuple(sorted(set(self.classes))) or lossless)
