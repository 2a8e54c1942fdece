"""The parts of a `ProbeRun` in the order in which reports show them."""

from __future__ import annotations

from collections.abc import Iterable

from rocelab.results.probes import Event, FibChange, HashingRun, ProbeRun


def event_name(number: int) -> str:
    """`E3`: the name of the third event in tables and plots; the table of events is their key."""
    return f"E{number}"


def by_plan(runs: Iterable[HashingRun]) -> list[HashingRun]:
    """Seed plans with the lab's own first."""
    return sorted(runs, key=lambda run: not run.own)


def plan_title(run: HashingRun) -> str:
    """The seed plan's name, marked if it is the lab's own."""
    return f"{run.hashing} (the lab's own)" if run.own else run.hashing


def changes_after(repeat: ProbeRun) -> list[tuple[Event, list[FibChange]]]:
    """FIB changes by the event that they follow; changes before the first are left out."""
    events = [record.event for record in repeat.events]
    ends = [event.t_ns for event in events[1:]]
    return [
        (
            event,
            [
                change
                for change in repeat.fib
                if event.t_ns <= change.t_ns and (end is None or change.t_ns < end)
            ],
        )
        for event, end in zip(events, [*ends, None], strict=True)
    ]
