"""Judges how punctual a lab's cables were during a run, where they take time (`links.delay`)."""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.base import quantities
from rocelab.base.wording import counted
from rocelab.dataplane.impairments import cables
from rocelab.dataplane.impairments.delayline import LATE_PART, VERY_LATE, Lateness
from rocelab.planning.delays import lab_delays_ns
from rocelab.planning.fabric import Fabric
from rocelab.record import LabFiles

LATE_SHARE_LIMIT = 0.01


@dataclass(frozen=True, slots=True)
class CableFigures:
    """What cables did during a run. `broken`: the switches whose cables let nothing
    through."""

    delay_ns: int
    """The longest of a link."""
    lateness: Lateness
    broken: tuple[str, ...]

    def problems(self) -> tuple[str, ...]:
        """Why the run is no measurement."""
        texts = [
            f"not valid because the process that delayed packets on the cables of {switch} had "
            f"ended "
            "or was stopped"
            for switch in self.broken
        ]
        if self.lateness.very_late:
            limit = quantities.duration(VERY_LATE * self.delay_ns)
            texts.append(
                f"not valid because {counted(self.lateness.very_late, 'packet')} left a link more "
                f"than {limit} late ({VERY_LATE} times links.delay)"
            )
        return tuple(texts)

    def warnings(self) -> tuple[str, ...]:
        """What of latency was the machine's."""
        packets, late, total_ns, _ = self.lateness
        if late <= LATE_SHARE_LIMIT * packets:
            return ()
        return (
            f"{late:,} of {packets:,} packets left a link later than links.delay by more than 1/"
            f"{LATE_PART} of it; on average a link took {quantities.duration(total_ns / packets)} "
            f"more than {quantities.duration(self.delay_ns)} of the lab's clock: a larger dilation "
            "helps",
        )


class CableWatch:
    """Watches a lab's cables from when it is made."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric, self._files = fabric, LabFiles(fabric.name)
        self._before = cables.lateness(fabric, self._files)

    def figures(self) -> CableFigures | None:
        """What happened since; None in a lab whose links take no time."""
        delays_ns = lab_delays_ns(self._fabric)
        if not delays_ns:
            return None
        now = cables.lateness(self._fabric, self._files)
        return CableFigures(
            delays_ns[-1],
            Lateness(*(after - before for after, before in zip(now, self._before, strict=True))),
            cables.broken(self._fabric, self._files),
        )
