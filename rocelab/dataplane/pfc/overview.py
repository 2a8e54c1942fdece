"""The lossless classes of a lab at one moment, for `rocelab status`.

Keys of the document and columns of the table have the names that `ethtool -S` of mlx5 NICs uses
(docs/pfc.md has the comparison).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rocelab.base.errors import InputError
from rocelab.dataplane.pfc.reading import ClassCounters, PauseReader
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePort


@dataclass(frozen=True, slots=True)
class ClassOverview:
    """A port, the node at its cable's other end, and a class of it."""

    port: PausePort
    peer: str
    traffic_class: int
    counters: ClassCounters

    @property
    def took_part(self) -> bool:
        """Whether it paused, was paused, or lost packets."""
        each = self.counters
        return bool(
            each.is_paused
            or each.pauses_sent
            or each.pauses_received
            or each.transitions
            or each.dropped_packets
            or each.late_packets
            or each.discarded_packets
            or each.watchdog_fired
        )

    def document(self, dilation: float) -> dict[str, object]:
        """An entry of `pfc.ports` in `rocelab status --json`."""
        each = self.counters
        return {
            "node": self.port.node,
            "interface": self.port.port.interface,
            "peer": self.peer,
            "class": self.traffic_class,
            "is_paused": each.is_paused,
            "rx_pause": each.pauses_received,
            "rx_resume": each.resumes_received,
            "rx_pause_transition": each.transitions,
            "rx_pause_duration_ns": each.paused_ns,
            "rx_pause_duration_modelled_ns": round(each.paused_ns / dilation),
            "rx_pause_longest_ns": each.longest_ns,
            "rx_pause_longest_modelled_ns": round(each.longest_ns / dilation),
            "tx_pause": each.pauses_sent,
            "tx_resume": each.resumes_sent,
            "held_bytes": each.held,
            "held_max_bytes": each.held_max,
            "headroom_bytes": self.port.headroom,
            "headroom_max_bytes": each.headroom_max,
            "admitted_packets": each.admitted_packets,
            "late_packets": each.late_packets,
            "rx_discards": each.dropped_packets,
            "queued_packets": each.queued_packets,
            "sent_packets": each.sent_packets,
            "purged_packets": each.purged_packets,
            "leaked_packets": each.leaked_packets,
            "pause_storm_events": each.watchdog_fired,
            "watchdog_discards": each.discarded_packets,
        }


@dataclass(frozen=True, slots=True)
class LosslessOverview:
    """All ports and classes. `is_alive`: whether the process that pauses runs. `problem`: why
    nothing, or not all, could be read."""

    is_alive: bool
    dilation: float
    classes: tuple[ClassOverview, ...] = ()
    problem: str | None = None

    @property
    def works(self) -> bool:
        return self.is_alive and self.problem is None

    def document(self) -> dict[str, object]:
        """The part `pfc` of `rocelab status --json`."""
        return {
            "alive": self.is_alive,
            "problem": self.problem,
            "dilation": self.dilation,
            "ports": [each.document(self.dilation) for each in self.classes],
        }


def read_overview(fabric: Fabric) -> LosslessOverview | None:
    """The lossless classes of a running lab; None if it has none."""
    if fabric.spec.queues.pfc is None or not fabric.servers:
        return None
    dilation = fabric.spec.dilation
    try:
        with PauseReader(fabric) as reader:
            found = reader.counters(time.monotonic_ns())
            by_slot = reader.plan.by_slot
            return LosslessOverview(
                is_alive=reader.is_alive(),
                dilation=dilation,
                classes=tuple(
                    ClassOverview(port, by_slot[port.peer].node, traffic_class, counters)
                    for (port, traffic_class), counters in found.items()
                ),
                problem=_unrecorded(reader),
            )
    except InputError as error:
        return LosslessOverview(is_alive=False, dilation=dilation, problem=error.message)


def _unrecorded(reader: PauseReader) -> str | None:
    """What is missing of the times and counts that come from the journal."""
    if not reader.is_complete:
        return "the journal of pauses is full: pauses and times are of its part only"
    if waiting := reader.unrecorded():
        return f"{waiting:,} records of pauses wait for room on the disk of /run/rocelab"
    return None
