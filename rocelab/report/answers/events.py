"""The worst event of a run of probes, in words: what was broken, which flows were out for how long,
and how much of that BGP waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base.quantities import Unit, duration, formatted
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import and_more, in_words
from rocelab.report.order import event_name
from rocelab.results.probes import Event, EventRecord, FaultChange, ProbeRun
from rocelab.results.stages import HOLD_NS, Stages, holds_until


@dataclass(frozen=True, slots=True)
class WorstEvent:
    """The event of a run that cost most packets."""

    number: int
    """Counts from 1."""

    record: EventRecord
    events: int
    """How many the run had."""

    flows: int
    """How many the run had."""

    out_ns: int | None
    """The longest loss of connectivity of a flow; None if it was not measured."""

    back_ns: int | None
    """When the last flow was back; None if it was not measured."""

    resolution_ns: float
    open: int
    """Flows that did not recover."""

    stages: Stages | None
    """None if they were not measured."""

    ended_ns: int | None = None
    """How long after it its fault ended; None if that was not seen."""


STORM = 6
"""From so many events on a run is a storm."""

MOST_CHANGES = 2
"""Changes of an event that a sentence names."""


def is_storm(run: ProbeRun) -> bool:
    """Whether there were so many events that a page shows what each did to each flow."""
    return len(run.events) >= STORM


def worst_event(run: ProbeRun) -> WorstEvent | None:
    """The event that lost most packets, of equals the first; None without events."""
    if not run.events:
        return None
    place = max(range(len(run.events)), key=lambda at: (_lost(run.events[at]), -at))
    record = run.events[place]
    hit = [
        flow.measurement.events[place]
        for flow in run.flows
        if flow.measurement.events[place].affected
    ]
    out_ns = [flow.loss_of_connectivity_ns for flow in hit]
    return WorstEvent(
        number=place + 1,
        record=record,
        events=len(run.events),
        flows=len(run.flows),
        out_ns=max((time for time in out_ns if time is not None), default=None),
        back_ns=record.convergence.full_convergence_ns,
        resolution_ns=record.convergence.resolution_ns,
        open=sum(not flow.restored for flow in hit),
        stages=run.stages[place] if place < len(run.stages) else None,
        ended_ns=_ended_ns(record.event, run.events[place + 1 :]),
    )


def _ended_ns(event: Event, later: Sequence[EventRecord]) -> int | None:
    ends = (
        record.event.t_ns - event.t_ns
        for record in later
        if record.event.change == "end" and record.event.subject == event.subject
    )
    return next(ends, None)


def _lost(record: EventRecord) -> int:
    return record.convergence.lost + record.convergence.lost_after_recovery


def outage_clause(worst: WorstEvent) -> str:
    """`both cables down (a, b): 6 of 24 flows out for up to 127 ms`."""
    affected = worst.record.convergence.affected_flows
    what = event_text(worst.record.event)
    if worst.events >= STORM:
        what = f"{event_name(worst.number)}, the worst of {worst.events} events ({what})"
    if not affected:
        return f"{what}: none of {counted(worst.flows, 'flow')} lost a packet"
    text = f"{what}: {affected} of {counted(worst.flows, 'flow')} out"
    if worst.out_ns is not None:
        text += f" for up to {formatted(worst.out_ns, Unit.NS, worst.resolution_ns)}"
    if worst.open:
        text += f", {worst.open} of them not back at the end"
    return text


def back_clause(run: ProbeRun) -> str:
    """`every flow is back at the end`, or how many are not."""
    out = [
        flow
        for flow in run.flows
        if not all(event.restored for event in flow.measurement.events if event.affected)
    ]
    if not out:
        return "every flow is back at the end"
    return f"{len(out)} of {counted(len(run.flows), 'flow')} not back at the end"


def holds(worst: WorstEvent) -> int:
    """At how many switches in a row FRR held the change back before the last flow was back."""
    if worst.stages is None or worst.back_ns is None or worst.out_ns is None:
        return 0
    number = holds_until(worst.stages, worst.back_ns)
    return number if number * HOLD_NS <= worst.out_ns else 0


def hold_clause(worst: WorstEvent) -> str:
    """`about 100 ms of it is FRR's hold of 50 ms at two hops`; empty if it did not hold it up. Of
    an outage that lasted longer than the fault, that."""
    if worst.out_ns is not None and worst.ended_ns is not None and worst.out_ns > worst.ended_ns:
        return f"the last was back only when the fault had ended, after {duration(worst.ended_ns)}"
    number = holds(worst)
    if not number:
        return ""
    hops = "at one hop" if number == 1 else f"at {in_words(number)} hops"
    return f"about {duration(number * HOLD_NS)} of it is FRR's hold of {duration(HOLD_NS)} {hops}"


def event_text(event: Event) -> str:
    """`cable rtsw1:ctsw2 down`, `both cables down (a, b)`; of other faults the title."""
    if event.change != "begin" or not event.faults or not all(map(_is_cable, event.faults)):
        return event_title(event)
    cables = tuple(dict.fromkeys(link for change in event.faults for link in change.links))
    if len(cables) == 1:
        return f"cable {cables[0]} down"
    if len(cables) == 2:
        return f"both cables down ({cables[0]}, {cables[1]})"
    return f"{in_words(len(cables))} cables down"


def event_title(event: Event) -> str:
    """`carrier-down of rtsw1:ctsw2 ends`; of several changes what began, or what ended:
    `power-loss of ctsw4, session-reset of rtsw4 and 1 more`."""
    if len(event.faults) < 2:
        return event.title
    begun = [change for change in event.faults if change.begins]
    changes = dict.fromkeys(
        f"{change.kind} of {change.nodes[0] if len(change.nodes) == 1 else change.subject}"
        for change in begun or event.faults
    )
    return and_more(changes, MOST_CHANGES) + ("" if begun else " ends")


def _is_cable(change: FaultChange) -> bool:
    return change.begins and change.dark and bool(change.links) and not change.nodes
