"""Computes the stages of one event: when each switch detected, decided and changed its FIB.

From the event's instant and window, link events, FRR's log, FIB changes and the recoveries of
flows, all in nanoseconds of one clock, come `SwitchStages` of every switch that took part.

A switch changes many routes. Its stages after detection are those of the route whose FIB entry
changed last, so that they follow one chain of cause and effect and sum to the time the switch
needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

from rocelab.linux.linkwatch import LinkEvent
from rocelab.observe.stages.frrlog import (
    BfdDown,
    LogEvent,
    RouteProgress,
    RouteReceived,
    RouteStep,
    SessionDown,
    SessionUp,
)
from rocelab.results.convergence import Window
from rocelab.results.stages import DetectionCause, SwitchStages

if TYPE_CHECKING:
    from rocelab.results.probes import FibChange

BFD_BY_OWN_TIMER = "control-expired"


@dataclass(frozen=True, slots=True)
class StageRecords:
    """The records of a lab's switches, in order of time."""

    links: tuple[LinkEvent, ...]
    log: tuple[LogEvent, ...]


@dataclass(frozen=True, slots=True)
class FlowRecovery:
    """A flow that lost packets to the event: the nodes on its path before, and the arrival of the
    first packet after its last loss; None if none arrived."""

    path: tuple[str, ...]
    recovered_ns: int | None


class _NodeRecord(Protocol):
    @property
    def node(self) -> str: ...


_NodeRecordT = TypeVar("_NodeRecordT", bound=_NodeRecord)


@dataclass(frozen=True, slots=True)
class _Detection:
    time_ns: int
    cause: DetectionCause


def stages_of(
    event_ns: int,
    window: Window,
    records: StageRecords,
    changes: Sequence[FibChange],
    recoveries: Sequence[FlowRecovery],
) -> tuple[SwitchStages, ...]:
    """The stages of every switch that saw something or changed its FIB in [event, window's end).

    `event_ns` is the Convergence Event Instant (RFC 6412 section 3.2.2). `changes` and the rest are
    in the same clock, not relative to it. The result is in order of detection, switches that
    detected nothing last.
    """
    end_ns = window.end_ns
    links = _by_node(one for one in records.links if event_ns <= one.time_ns < end_ns)
    log = _by_node(one for one in records.log if event_ns <= one.time_ns < end_ns)
    fib = _by_node(one for one in changes if event_ns <= one.t_ns < end_ns)
    stages = [
        _switch(
            node, event_ns, links.get(node, []), log.get(node, []), fib.get(node, []), recoveries
        )
        for node in dict.fromkeys([*links, *log, *fib])
    ]
    return tuple(
        sorted((one for one in stages if _is_involved(one)), key=lambda one: _order(one, end_ns))
    )


def _is_involved(stages: SwitchStages) -> bool:
    return stages.detected_ns is not None or stages.best_path_ns is not None or stages.changes > 0


def _order(stages: SwitchStages, never_ns: int) -> tuple[int, int, str]:
    detected_ns = never_ns if stages.detected_ns is None else stages.detected_ns
    kernel_ns = never_ns if stages.kernel_ns is None else stages.kernel_ns
    return detected_ns, kernel_ns, stages.node


def _switch(
    node: str,
    event_ns: int,
    links: Sequence[LinkEvent],
    log: Sequence[LogEvent],
    fib: Sequence[FibChange],
    recoveries: Sequence[FlowRecovery],
) -> SwitchStages:
    first = min(_signs(links, log), key=lambda sign: sign.time_ns, default=None)
    known_ns = event_ns if first is None else first.time_ns
    # Anything before the first sign belongs to an earlier event.
    caused = [change for change in fib if change.t_ns >= known_ns]
    steps = [one for one in log if isinstance(one, RouteStep) and one.time_ns >= known_ns]
    last = max(_removals(caused), key=lambda change: change.t_ns, default=None)
    prefix = _last_sent_prefix(steps) if last is None else last.prefix
    limit_ns = None if last is None else last.t_ns
    zebra_ns = _last(steps, prefix, limit_ns, RouteProgress.HANDED) or _last(
        steps, prefix, limit_ns, RouteProgress.PROCESSED
    )
    best_path_ns = _last(steps, prefix, zebra_ns or limit_ns, RouteProgress.SENT)
    sessions = [one.time_ns for one in log if isinstance(one, SessionDown | SessionUp)]

    def after(instant_ns: int | None) -> int | None:
        return None if instant_ns is None else instant_ns - event_ns

    return SwitchStages(
        node=node,
        detected_by=None if first is None else first.cause,
        detected_ns=None if first is None else after(first.time_ns),
        session_ns=after(min(sessions, default=None)),
        best_path_ns=after(best_path_ns),
        zebra_ns=after(zebra_ns),
        kernel_ns=after(limit_ns),
        first_good_packet_ns=after(_recovered(node, recoveries)),
        prefix=prefix,
        changes=len(caused),
    )


def _signs(links: Sequence[LinkEvent], log: Iterable[LogEvent]) -> Iterator[_Detection]:
    for link in links:
        yield _Detection(link.time_ns, DetectionCause.CARRIER)
    for event in log:
        match event:
            # On a busy machine a session's end may be read first, for which FRR 10.3 has no reason.
            case SessionDown(cause=DetectionCause.OTHER) if any(not link.carrier for link in links):
                yield _Detection(event.time_ns, DetectionCause.CARRIER)
            case SessionDown(cause=cause):
                yield _Detection(event.time_ns, cause)
            case SessionUp():
                yield _Detection(event.time_ns, DetectionCause.SESSION_UP)
            case BfdDown(detail=detail) if detail == BFD_BY_OWN_TIMER:
                yield _Detection(event.time_ns, DetectionCause.BFD)
            case RouteReceived():
                yield _Detection(event.time_ns, DetectionCause.PEER)


def _removals(changes: Sequence[FibChange]) -> Sequence[FibChange]:
    """The changes that removed a next hop; if none did, as after a repair, all changes.

    A change to the same number of next hops may have replaced one, so it counts too.
    """
    narrower = [
        change
        for change in changes
        if change.width_after is None
        or (change.width_before is not None and change.width_after <= change.width_before)
    ]
    return narrower or changes


def _last_sent_prefix(steps: Sequence[RouteStep]) -> str | None:
    """The last route that bgpd changed, for when the kernel dropped every dead next hop by
    itself."""
    sent = [step for step in steps if step.step is RouteProgress.SENT]
    return max(sent, key=lambda step: step.time_ns).prefix if sent else None


def _last(
    steps: Sequence[RouteStep], prefix: str | None, limit_ns: int | None, wanted: RouteProgress
) -> int | None:
    """When the route last reached that step, not after `limit_ns`."""
    times_ns = (
        step.time_ns
        for step in steps
        if step.prefix == prefix
        and step.step is wanted
        and (limit_ns is None or step.time_ns <= limit_ns)
    )
    return max(times_ns, default=None)


def _recovered(node: str, recoveries: Sequence[FlowRecovery]) -> int | None:
    crossed = [flow.recovered_ns for flow in recoveries if node in flow.path]
    known = [instant_ns for instant_ns in crossed if instant_ns is not None]
    return max(known, default=None) if len(known) == len(crossed) else None


def _by_node(events: Iterable[_NodeRecordT]) -> dict[str, list[_NodeRecordT]]:
    grouped: dict[str, list[_NodeRecordT]] = {}
    for event in events:
        grouped.setdefault(event.node, []).append(event)
    return grouped
