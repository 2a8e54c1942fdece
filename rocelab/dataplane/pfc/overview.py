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
    def is_involved(self) -> bool:
        """Whether it paused, was paused, or lost packets."""
        counters = self.counters
        return bool(
            counters.is_paused
            or counters.pauses_sent
            or counters.pauses_received
            or counters.transitions
            or counters.dropped_packets
            or counters.late_packets
            or counters.discarded_packets
            or counters.watchdog_fired
        )

    def document(self, dilation: float) -> dict[str, object]:
        """An entry of `pfc.ports` in `rocelab status --json`."""
        counters = self.counters
        return {
            "node": self.port.node,
            "interface": self.port.port.interface,
            "peer": self.peer,
            "class": self.traffic_class,
            "is_paused": counters.is_paused,
            "rx_pause": counters.pauses_received,
            "rx_resume": counters.resumes_received,
            "rx_pause_transition": counters.transitions,
            "rx_pause_duration_ns": counters.paused_ns,
            "rx_pause_duration_modelled_ns": round(counters.paused_ns / dilation),
            "rx_pause_longest_ns": counters.longest_ns,
            "rx_pause_longest_modelled_ns": round(counters.longest_ns / dilation),
            "tx_pause": counters.pauses_sent,
            "tx_resume": counters.resumes_sent,
            "held_bytes": counters.held,
            "held_max_bytes": counters.held_max,
            "headroom_bytes": self.port.headroom,
            "headroom_max_bytes": counters.headroom_max,
            "admitted_packets": counters.admitted_packets,
            "late_packets": counters.late_packets,
            "rx_discards": counters.dropped_packets,
            "queued_packets": counters.queued_packets,
            "sent_packets": counters.sent_packets,
            "purged_packets": counters.purged_packets,
            "leaked_packets": counters.leaked_packets,
            "pause_storm_events": counters.watchdog_fired,
            "watchdog_discards": counters.discarded_packets,
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
            "ports": [port.document(self.dilation) for port in self.classes],
        }


def read_overview(fabric: Fabric) -> LosslessOverview | None:
    """The lossless classes of a running lab, of all its networks; None if it has none."""
    if fabric.parts:
        overviews = [one for one in map(read_overview, fabric.parts) if one is not None]
        problems = [one.problem for one in overviews if one.problem is not None]
        if not overviews:
            return None
        return LosslessOverview(
            is_alive=all(one.is_alive for one in overviews),
            dilation=fabric.spec.dilation,
            classes=tuple(port for one in overviews for port in one.classes),
            problem="; ".join(problems) or None,
        )
    if fabric.spec.queues.pfc is None or not fabric.servers:
        return None
    dilation = fabric.spec.dilation
    try:
        with PauseReader(fabric) as reader:
            readings = reader.counters(time.monotonic_ns())
            by_slot = reader.plan.by_slot
            return LosslessOverview(
                is_alive=reader.is_alive(),
                dilation=dilation,
                classes=tuple(
                    ClassOverview(port, by_slot[port.peer].node, traffic_class, counters)
                    for (port, traffic_class), counters in readings.items()
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
