"""The content of every rendering of a `ProbeRun`, as rows of text.

The terminal and the page lay out the same rows in their own ways. Nothing is measured here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rocelab.base.units import format_duration
from rocelab.planning.fabric import Direction
from rocelab.results.probes import Event, FibChange, FlowRecord, HashingRun, ProbeRun
from rocelab.routes.balance import Balance

LIMITS = (
    "It tells how FRR and the Linux kernel react: in which order, and after how long, zebra and "
    "bgpd take a next hop out of every switch's FIB, and which flows lose packets until then.",
    "It tells where flows land under Linux's own ECMP hash (hash-threshold over the 5-tuple), and "
    "what equal seeds do to it. Switch ASICs hash with other functions.",
    "It does not tell how long an ASIC takes to program its FIB, nor what optics, carrier-delay "
    "timers or hardware fast reroute add or save.",
    "It does not tell about line-rate queues, PFC, or a NIC's retransmissions: the flows here are "
    "constant-rate packets without acknowledgements.",
    "All switches share this machine's CPUs, so with many switches a convergence time includes "
    "waiting for a CPU that real switches do not share.",
)


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event and its effect on all flows; numbered from 1."""

    number: int
    title: str
    at: str
    affected: str
    lost: str
    convergence: str


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A flow that an event affected."""

    flow: str
    path: str
    event: str
    lost: str
    convergence: str
    loss_derived: str
    connectivity: str
    rate_derived: str
    reordered: str


@dataclass(frozen=True, slots=True)
class BalanceCell:
    """A tier and direction under one seed plan."""

    hashing: str
    mmr: str
    jfi: str
    cov: str
    unused: str
    worst: str


@dataclass(frozen=True, slots=True)
class TierRow:
    """A tier and direction under each seed plan, side by side."""

    tier: str
    direction: str
    links: int
    expected: str
    cells: tuple[BalanceCell, ...]


@dataclass(frozen=True, slots=True)
class PolarizationRow:
    """One pair of consecutive choices under one seed plan."""

    hashing: str
    stages: str
    flows: int
    used: str
    information: str
    by_chance: str


@dataclass(frozen=True, slots=True)
class FibRow:
    """What one switch did to its FIB after one event."""

    event: str
    node: str
    changes: int
    first: str
    last: str
    widths: str


def event_rows(repeat: ProbeRun) -> list[EventRow]:
    """The events in order of time."""
    return [
        EventRow(
            number,
            record.event.title,
            format_duration(record.event.t_ns),
            f"{record.convergence.affected_flows:,}",
            f"{record.convergence.lost + record.convergence.lost_after_recovery:,}",
            _time(record.convergence.full_convergence_ns, record.convergence.resolution_ns)
            if record.convergence.affected_flows
            else "-",
        )
        for number, record in enumerate(repeat.events, 1)
    ]


def flow_rows(repeat: ProbeRun) -> list[FlowRow]:
    """The flows that lost packets, one row per event that affected them, worst first."""
    rows: list[tuple[int, FlowRow]] = []
    for record in repeat.flows:
        for event, convergence in zip(repeat.events, record.measurement.events, strict=True):
            if convergence.affected:
                known_ns = convergence.resolution_ns + event.event.took_ns
                rows.append(
                    (
                        convergence.lost,
                        FlowRow(
                            flow=record.flow.name,
                            path=f"{record.flow.source} → {record.flow.destination}",
                            event=event.event.title,
                            lost=f"{convergence.lost + convergence.lost_after_recovery:,}",
                            convergence=_time(convergence.convergence_ns, known_ns),
                            loss_derived=_time(convergence.loss_derived_ns, known_ns),
                            connectivity=_time(convergence.loss_of_connectivity_ns, known_ns),
                            rate_derived=_time(convergence.rate_derived_ns or None),
                            reordered=f"{record.measurement.reordered:,}",
                        ),
                    )
                )
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def untouched(repeat: ProbeRun) -> list[FlowRecord]:
    """The flows that no event affected."""
    return [
        record
        for record in repeat.flows
        if not any(event.affected for event in record.measurement.events)
    ]


def tier_rows(runs: Iterable[HashingRun]) -> list[TierRow]:
    """Balance per tier and direction, the seed plans side by side, the lab's own first."""
    ordered = by_plan(runs)
    rows: dict[tuple[str, Direction], TierRow] = {}
    for run in ordered:
        for tier in run.tiers:
            worst = ""
            if tier.worst_group is not None:
                group = next(g.balance for g in tier.groups if g.node == tier.worst_group)
                worst = f"{tier.worst_group} {_ratio(group.mmr)}"
            key = tier.tier, tier.direction
            old = rows.get(key)
            random = tier.random
            rows[key] = TierRow(
                tier=tier.tier,
                direction=tier.direction.value,
                links=tier.all_links.links,
                expected="" if random is None else f"{random.mmr:.2f} (p99 {random.mmr_p99:.2f})",
                cells=(*(old.cells if old else ()), _cell(run, tier.all_links, worst)),
            )
    return list(rows.values())


def by_plan(runs: Iterable[HashingRun]) -> list[HashingRun]:
    """Seed plans with the lab's own first."""
    return sorted(runs, key=lambda run: not run.own)


def plan_title(run: HashingRun) -> str:
    """The seed plan's name, marked if it is the lab's own."""
    return f"{run.hashing} (the lab's own)" if run.own else run.hashing


def polarization_rows(runs: Iterable[HashingRun]) -> list[PolarizationRow]:
    """Every pair of consecutive choices under every seed plan."""
    return [
        PolarizationRow(
            hashing=run.hashing,
            stages=f"{one.first} → {one.second}",
            flows=one.flows,
            used=f"{one.used_links} of {one.offered_links} ({one.used_fraction:.0%})",
            information=_ratio(one.information),
            by_chance=_ratio(one.information_if_independent),
        )
        for run in by_plan(runs)
        for one in run.polarizations
    ]


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


def fib_rows(repeat: ProbeRun) -> list[FibRow]:
    """Per event and switch: how many changes, first and last, and the commonest widths."""
    rows = []
    for event, changes in changes_after(repeat):
        nodes = dict.fromkeys(change.node for change in changes)
        for node in nodes:
            own = [change for change in changes if change.node == node]
            widths = Counter((c.width_before, c.width_after) for c in own).most_common(3)
            rows.append(
                FibRow(
                    event=event.title,
                    node=node,
                    changes=len(own),
                    first=format_duration(own[0].t_ns - event.t_ns),
                    last=format_duration(own[-1].t_ns - event.t_ns),
                    widths=", ".join(
                        f"{n} x {_width(before)}→{_width(after)}" for (before, after), n in widths
                    ),
                )
            )
    return rows


def _width(width: int | None) -> str:
    return "none" if width is None else str(width)


def _time(ns: float | None, resolution_ns: int = 0) -> str:
    if ns is None:
        return "not measured"
    return format_duration(ns) if ns > resolution_ns else f"< {format_duration(resolution_ns)}"


def _ratio(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _cell(run: HashingRun, balance: Balance, worst: str) -> BalanceCell:
    return BalanceCell(
        hashing=run.hashing,
        mmr=_ratio(balance.mmr),
        jfi=_ratio(balance.jfi),
        cov=_ratio(balance.cov),
        unused=f"{balance.unused} of {balance.links}",
        worst=worst,
    )
