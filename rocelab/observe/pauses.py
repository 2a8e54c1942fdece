"""Reads what lossless classes did during a run: pauses, lateness, drops and conservation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from time import monotonic_ns
from typing import Self

import numpy as np

from rocelab.agent.agent import clock_offset_ns
from rocelab.dataplane.pfc.journal import JournalAction, JournalEntry
from rocelab.dataplane.pfc.reading import ClassCounters, ObservedPause, PauseReader, pauses
from rocelab.planning.fabric import Fabric
from rocelab.planning.pauses import PausePlan, PausePort
from rocelab.results.lossless import Lossless, PauseFigures, PauseSpan

Counters = Mapping[tuple[PausePort, int], ClassCounters]

MOST_SPANS = 5000
"""Those that last and the longest are kept."""


class PauseWatch:
    """Watches within its context; a lab without lossless classes has no figures."""

    def __init__(self, fabric: Fabric) -> None:
        self._reader = PauseReader(fabric) if fabric.spec.queues.pfc is not None else None
        self._cleanup = ExitStack()

    def __enter__(self) -> Self:
        if self._reader is not None:
            self._cleanup.push(self._reader)
            self._begun_ns = monotonic_ns()
            self._before = self._reader.counters(self._begun_ns)
            self._unreported_before = self._reader.unreported()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def figures(self, started_ns: int) -> Lossless | None:
        """What happened since `__enter__`, times since `started_ns` of CLOCK_REALTIME."""
        reader = self._reader
        if reader is None:
            return None
        now_ns = monotonic_ns()
        zero_ns = started_ns - clock_offset_ns()
        after = reader.counters(now_ns)
        whole = reader.entries()
        entries = [entry for entry in whole if entry.t_ns >= self._begun_ns]
        spans = [
            _span(pause, self._begun_ns, zero_ns)
            for pause in pauses(reader.plan, whole)
            if pause.end_ns is None or pause.end_ns > self._begun_ns
        ]
        end_ns = now_ns - zero_ns
        longest_ns: dict[tuple[str, str, int], int] = {}
        for span in spans:
            place = span.node, span.interface, span.traffic_class
            longest_ns[place] = max(span.length_ns(end_ns), longest_ns.get(place, 0))
        spans.sort(key=lambda span: (span.end_ns is not None, -span.length_ns(end_ns)))
        nics = {port.slot for port in reader.plan.ports if port.is_nic}
        late_ns = _lateness(entries)
        nics_late_ns = _lateness([entry for entry in entries if entry.slot in nics])
        least = _least_held(reader.plan, entries)
        return Lossless(
            classes=reader.plan.pfc.classes,
            ports=tuple(
                _figures(
                    port,
                    traffic_class,
                    reader.plan.by_slot[port.peer].node,
                    then,
                    now,
                    longest_ns.get((port.node, port.port.interface, traffic_class), 0),
                    least.get((port, traffic_class)),
                )
                for (port, traffic_class), now in after.items()
                for then in (self._before[port, traffic_class],)
                if _is_used(then, now)
            ),
            spans=tuple(sorted(spans[:MOST_SPANS], key=lambda span: span.begin_ns)),
            spans_left_out=max(0, len(spans) - MOST_SPANS),
            delay_ns=min(port.delay_ns for port in reader.plan.ports),
            late_p50_ns=late_ns[0] if late_ns else None,
            late_p99_ns=late_ns[1] if late_ns else None,
            late_max_ns=late_ns[2] if late_ns else None,
            unbalanced=reader.imbalance(),
            is_alive=reader.is_alive(),
            nics_late_p99_ns=nics_late_ns[1] if nics_late_ns else None,
            restarts=sum(entry.what is JournalAction.TAKEN_OVER for entry in entries),
            is_recorded=not reader.unrecorded()
            and all(entry.what is not JournalAction.LOST for entry in whole),
            unreported=reader.unreported() - self._unreported_before,
            unreceived=_unreceived_pauses(reader.plan, self._before, after),
            unaccounted=_unaccounted_packets(reader.plan, self._before, after),
        )


def _lateness(entries: list[JournalEntry]) -> tuple[int, int, int] | None:
    late = [
        entry.value
        for entry in entries
        if entry.what in (JournalAction.STOPPED, JournalAction.STARTED)
    ]
    if not late:
        return None
    p50, p99 = np.percentile(late, (50, 99))
    return round(float(p50)), round(float(p99)), max(late)


def _least_held(plan: PausePlan, entries: list[JournalEntry]) -> dict[tuple[PausePort, int], int]:
    """The least that each NIC's receive buffer held when the NIC asked for a pause."""
    least: dict[tuple[PausePort, int], int] = {}
    for entry in entries:
        if entry.what in (JournalAction.PAUSE_SENT, JournalAction.REFRESHED):
            port = plan.by_slot[entry.slot]
            place = port, entry.traffic_class
            if port.is_nic:
                least[place] = min(entry.value, least.get(place, entry.value))
    return least


def _unreceived_pauses(plan: PausePlan, before: Counters, after: Counters) -> dict[str, int]:
    """Pause frames, also those that end a pause, sent and not received since, by port; that of a
    peer that is still paused may be on its way."""
    losses = {}
    for (port, traffic_class), now in after.items():
        far = plan.by_slot[port.peer], traffic_class
        then, there, then_there = before[port, traffic_class], after[far], before[far]
        pauses = now.pauses_sent - then.pauses_sent
        pauses -= there.pauses_received - then_there.pauses_received + there.is_paused
        resumes = now.resumes_sent - then.resumes_sent
        resumes -= there.resumes_received - then_there.resumes_received
        if lost := max(0, pauses) + max(0, resumes):
            losses[f"{port} class {traffic_class}"] = lost
    return losses


def _unaccounted_packets(plan: PausePlan, before: Counters, after: Counters) -> dict[str, int]:
    """Packets that came into a switch's port since, and that it neither admitted, dropped nor
    discarded, by port and class, and by switch where a watchdog discarded some, as nobody knows
    which port these came by; negative if there were more than came."""
    discarding = {
        (port.node, traffic_class)
        for (port, traffic_class), now in after.items()
        if now.discarded_packets != before[port, traffic_class].discarded_packets
    }
    missing: Counter[str] = Counter()
    for (port, traffic_class), now in after.items():
        if port.is_nic:
            continue
        far = plan.by_slot[port.peer], traffic_class
        came = after[far].arrived_packets - before[far].arrived_packets
        taken = now.taken_packets - before[port, traffic_class].taken_packets
        place = port.node if (port.node, traffic_class) in discarding else str(port)
        missing[f"{place} class {traffic_class}"] += came - taken
    return {place: count for place, count in missing.items() if count}


def _is_used(then: ClassCounters, now: ClassCounters) -> bool:
    """Whether a port and class sent, held, paused or was paused."""
    counts = ("admitted_packets", "queued_packets", "pauses_sent", "pauses_received")
    return now.is_paused or any(getattr(now, name) != getattr(then, name) for name in counts)


def _figures(
    port: PausePort,
    traffic_class: int,
    peer: str,
    then: ClassCounters,
    now: ClassCounters,
    longest_ns: int,
    least_held: int | None,
) -> PauseFigures:
    return PauseFigures(
        node=port.node,
        interface=port.port.interface,
        traffic_class=traffic_class,
        peer=peer,
        packets=now.admitted_packets - then.admitted_packets,
        pauses_sent=now.pauses_sent - then.pauses_sent,
        pauses_received=now.pauses_received - then.pauses_received,
        transitions=now.transitions - then.transitions,
        paused_ns=now.paused_ns - then.paused_ns,
        longest_ns=longest_ns,
        held_bytes=now.held,
        held_max_bytes=now.held_max,
        headroom_max_bytes=now.headroom_max,
        dropped_packets=now.dropped_packets - then.dropped_packets,
        late_packets=now.late_packets - then.late_packets,
        purged_packets=now.purged_packets - then.purged_packets,
        discarded_packets=now.discarded_packets - then.discarded_packets,
        watchdog=now.watchdog_fired - then.watchdog_fired,
        least_held_bytes=least_held,
    )


def _span(pause: ObservedPause, begun_ns: int, zero_ns: int) -> PauseSpan:
    """The part of a pause since the run began."""
    port = pause.sender
    return PauseSpan(
        node=port.node,
        interface=port.port.interface,
        traffic_class=pause.traffic_class,
        peer=pause.peer,
        begin_ns=max(pause.begin_ns, begun_ns) - zero_ns,
        end_ns=None if pause.end_ns is None else pause.end_ns - zero_ns,
    )
