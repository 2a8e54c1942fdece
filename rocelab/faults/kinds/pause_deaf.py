"""Ports that ignore pause frames."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

from rocelab.dataplane.pfc import control
from rocelab.dataplane.pfc.maps import CLASSES, PauseMaps
from rocelab.dataplane.pfc.program import pins_folder
from rocelab.faults.base import LinkFaultSpec, LinksFault, Towards
from rocelab.faults.pauses import (
    check_pausing,
    lossless_plan,
    network_of_links,
    pause_files,
    pause_port,
)
from rocelab.faults.selectors import directed
from rocelab.lab.lab import RunningLab
from rocelab.linux.bracket import Bracket, spanning
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePort


@dataclass(frozen=True, slots=True)
class PauseDeaf(LinksFault):
    """Ports ignore pause frames: those that send towards one node, or both ends of `links`."""

    towards: str | None = None
    kind: str = "pause-deaf"

    def prepare(self, lab: RunningLab) -> None:
        """Raises MachineError if no process of the lab obeys pauses."""
        check_pausing(lab, self.links)

    def intact(self, lab: RunningLab) -> frozenset[str]:
        return frozenset(
            f"{port} obeys pauses" for port, is_deaf in self._deaf_ports(lab) if not is_deaf
        )

    def inject(self, lab: RunningLab) -> Bracket:
        return self._set(lab, deaf=True) or Bracket.now()

    def restore(self, lab: RunningLab) -> Bracket | None:
        return self._set(lab, deaf=False)

    def remains(self, lab: RunningLab) -> tuple[str, ...]:
        return tuple(f"{port} ignores pauses" for port, is_deaf in self._deaf_ports(lab) if is_deaf)

    def _set(self, lab: RunningLab, *, deaf: bool) -> Bracket | None:
        files = pause_files(lab, self.links)
        done = [
            Bracket.of(partial(control.set_pause_obedience, files, port.slot, deaf=deaf))
            for port, is_deaf in self._deaf_ports(lab)
            if is_deaf != deaf
        ]
        return spanning(done) if done else None

    def _ports(self, lab: RunningLab) -> Iterator[PausePort]:
        for way in directed(self.links, self.towards):
            yield pause_port(lab, way.sender, way.link)

    def _deaf_ports(self, lab: RunningLab) -> list[tuple[PausePort, bool]]:
        """The ports, and whether each ignores pauses of any class."""
        ports = list(self._ports(lab))
        with PauseMaps(pins_folder(pause_files(lab, self.links))) as maps:
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


class PauseDeafSpec(LinkFaultSpec):
    """A port ignores pauses: its peer's headroom overflows. A server's port is a NIC."""

    spares_packets = True
    kind: Literal["pause-deaf"]
    towards: Towards = None

    def resolve(self, fabric: Fabric) -> PauseDeaf:
        links = self.find(fabric, self.towards)
        lossless_plan(network_of_links(fabric, links))
        return PauseDeaf(links, self.towards)
