"""A run of probes as sections of a document: events, losses, what the switches did, where flows
landed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from rocelab.base.quantities import Unit, duration, ratio, share
from rocelab.base.wording import counted
from rocelab.report import plots
from rocelab.report.answers.events import event_title
from rocelab.report.document import (
    Cell,
    Column,
    Figure,
    Note,
    Row,
    Section,
    Table,
    Tone,
    Value,
    columns,
)
from rocelab.report.order import by_plan, changes_after, event_name, plan_title
from rocelab.results.convergence import FlowConvergence, MeasurementMethod
from rocelab.results.probes import FlowRecord, HashingRun, ProbeRun
from rocelab.routes.balance import TierBalance

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

MAX_ROWS = 200
"""Flows in the table: those that lost most."""

NOT_MEASURED = "not measured"


def events_section(run: ProbeRun, method: MeasurementMethod) -> Section:
    """The events and their effect on all flows."""
    return Section(
        "Events",
        (
            Table(
                "",
                (
                    *columns(Unit.TEXT, "event", "what"),
                    Column("at, lab", Unit.NS),
                    *columns(Unit.COUNT, "flows affected", "packets lost"),
                    Column("full convergence, lab", Unit.NS),
                ),
                tuple(
                    (
                        event_name(number),
                        event_title(record.event),
                        record.event.t_ns,
                        record.convergence.affected_flows,
                        record.convergence.lost + record.convergence.lost_after_recovery,
                        _time(
                            record.convergence.full_convergence_ns, record.convergence.resolution_ns
                        )
                        if record.convergence.affected_flows
                        else None,
                    )
                    for number, record in enumerate(run.events, 1)
                ),
                sortable=False,
            ),
            Note(
                "Times count from the first event. Recovery counts once forwarding has stayed "
                f"whole for {duration(method.sustained_ns)}.",
                Tone.QUIET,
                page_only=True,
            ),
        ),
    )


def losses_section(run: ProbeRun, name: str) -> Section:
    """The flows that events affected, worst first."""
    rows = flow_rows(run)
    outside = run.overall.lost_outside_events
    return Section(
        "Flows out",
        (
            Note(
                "Each strip is a flow, and each dashed line an event of the table above. An outage "
                "runs from the sending of its first lost packet to the sending of the next one "
                "that arrived, so it is no finer than the time between the packets around it, here "
                f"up to {duration(run.overall.resolution_ns)}.",
                page_only=True,
            ),
            Figure(f"{name}-loss", partial(plots.loss_timeline, run)),
            Table(
                "",
                (
                    *columns(Unit.TEXT, "flow", "path", "event"),
                    Column("lost", Unit.COUNT),
                    *columns(
                        Unit.NS,
                        "convergence, lab",
                        "loss-derived",
                        "no connectivity",
                        "rate-derived",
                    ),
                    Column("reordered", Unit.COUNT, page_only=True),
                ),
                tuple(rows[:MAX_ROWS]),
            ),
            *_left_out(len(rows) - MAX_ROWS),
            Note(f"{len(_untouched(run))} of {counted(len(run.flows), 'flow')} were not affected."),
            Note(f"{counted(outside, 'packet')} were lost at times that no event accounts for.")
            if outside
            else Note("No packet was lost at a time that no event accounts for.", page_only=True),
        ),
    )


def _left_out(number: int) -> list[Note]:
    if number <= 0:
        return []
    rows = f"{number:,} more rows, with fewer losses, are in"
    return [Note(f"{rows} result.json and in the replay of the page.")]


def flow_rows(run: ProbeRun) -> list[Row]:
    """A row for each event that affected a flow, worst first."""
    rows = [
        (convergence.lost, _flow_row(record, event_name(number), event.event.took_ns, convergence))
        for record in run.flows
        for number, (event, convergence) in enumerate(
            zip(run.events, record.measurement.events, strict=True), 1
        )
        if convergence.affected
    ]
    return [row for _, row in sorted(rows, key=lambda pair: -pair[0])]


def _flow_row(record: FlowRecord, event: str, took_ns: int, flow: FlowConvergence) -> Row:
    known_ns = flow.resolution_ns + took_ns
    return (
        record.flow.name,
        f"{record.flow.source} → {record.flow.destination}",
        event,
        flow.lost + flow.lost_after_recovery,
        _time(flow.convergence_ns, known_ns),
        _time(flow.loss_derived_ns, known_ns),
        _time(flow.loss_of_connectivity_ns, known_ns),
        _time(flow.rate_derived_ns or None),
        record.measurement.reordered,
    )


def _untouched(run: ProbeRun) -> list[FlowRecord]:
    """The flows that no event affected."""
    return [
        record
        for record in run.flows
        if not any(event.affected for event in record.measurement.events)
    ]


def fib_section(run: ProbeRun, name: str) -> Section:
    """What the switches did to their FIBs."""
    rows = fib_rows(run)
    nothing = Note("No change of any switch's FIB was seen.", page_only=True)
    return Section(
        "FIB changes",
        (
            Note(
                "Every change of a switch's kernel FIB, as netlink reported it. All events have "
                "one logarithmic axis.",
                page_only=True,
            )
            if rows
            else nothing,
            Figure(f"{name}-fib", partial(plots.fib_timeline, run)),
            Table(
                "",
                (
                    *columns(Unit.TEXT, "event", "switch", "next hops"),
                    Column("changes", Unit.COUNT),
                    *columns(Unit.NS, "first after it, lab", "last"),
                ),
                tuple(rows),
                names=2,
            ),
        ),
    )


def fib_rows(run: ProbeRun) -> list[Row]:
    """Per event and switch: the commonest widths, how many changes, first and last."""
    rows: list[Row] = []
    for number, (event, changes) in enumerate(changes_after(run), 1):
        for node in dict.fromkeys(change.node for change in changes):
            of_node = [change for change in changes if change.node == node]
            widths = Counter((c.width_before, c.width_after) for c in of_node).most_common(3)
            texts = (f"{n} x {_width(before)}→{_width(after)}" for (before, after), n in widths)
            first_ns, last_ns = (of_node[place].t_ns - event.t_ns for place in (0, -1))
            rows.append(
                (event_name(number), node, ", ".join(texts), len(of_node), first_ns, last_ns)
            )
    return rows


def _width(width: int | None) -> str:
    return "none" if width is None else str(width)


def balance_section(run: ProbeRun, name: str) -> Section:
    """Where the flows landed, undisturbed, under each seed plan, and polarization."""
    plans = by_plan(run.hashing)
    rows = tuple(_tier_rows(plans))
    if not rows:
        nothing = Note("Link loads were not measured.", page_only=True)
        return Section("Link loads", (nothing,), page_only=True)
    titles = ", ".join(map(plan_title, plans))
    return Section(
        "Link loads",
        (
            Note(
                "Packets per link over the mean of its tier, of the same traffic, undisturbed, "
                f"under each seed plan ({titles}).",
            ),
            Figure(f"{name}-loads", partial(plots.link_loads, run.hashing)),
            Table(
                "",
                (
                    *columns(Unit.TEXT, "tier", "seeds", "worst group (MMR)"),
                    *columns(Unit.RATIO, "MMR", "JFI", "CoV"),
                    *columns(Unit.FIGURE, "unused", "random MMR"),
                ),
                rows,
                names=2,
            ),
            _polarization(plans),
        ),
    )


def _tier_rows(plans: list[HashingRun]) -> Iterator[Row]:
    """A row for each tier and direction under each plan, the plans of one beside each other."""
    keys = dict.fromkeys((tier.tier, tier.direction) for run in plans for tier in run.tiers)
    for key in keys:
        for run in plans:
            for tier in run.tiers:
                if (tier.tier, tier.direction) == key:
                    yield _tier_row(run, tier)


def _tier_row(run: HashingRun, tier: TierBalance) -> Row:
    worst = next((group for group in tier.groups if group.node == tier.worst_group), None)
    whole, random = tier.all_links, tier.random
    return (
        f"{tier.tier} {tier.direction}",
        run.hashing,
        "" if worst is None else f"{worst.node} {_ratio(worst.balance.mmr)}",
        whole.mmr,
        whole.jfi,
        whole.cov,
        f"{whole.unused} of {whole.links}",
        "" if random is None else f"{ratio(random.mmr)} (p99 {ratio(random.mmr_p99)})",
    )


def _ratio(value: float | None) -> str:
    return "none" if value is None else ratio(value)


def _polarization(plans: list[HashingRun]) -> Section:
    rows = tuple(
        (
            f"{pair.first} → {pair.second}",
            run.hashing,
            pair.flows,
            f"{pair.used_links} of {pair.offered_links} ({share(pair.used_fraction)})",
            pair.information,
            pair.information_if_independent,
        )
        for run in plans
        for pair in run.polarizations
    )
    title = "Polarization: does a choice repeat the one before it?"
    if not rows:
        return Section(title, (_NO_SECOND_CHOICE,))
    head = (
        *columns(Unit.TEXT, "choices", "seeds"),
        Column("flows", Unit.COUNT),
        Column("links used", Unit.FIGURE),
        *columns(Unit.RATIO, "information", "by chance"),
    )
    return Section(title, (_INFORMATION, Table("", head, rows, names=2)))


_NO_SECOND_CHOICE = Note(
    "Not applicable: in this fabric no flow has two choices in a row, so there is no second choice "
    "to repeat the first. It takes ATSWs, or parallel links between RTSW and CTSW."
)
_INFORMATION = Note(
    "Information: how strongly the first choice determines the second (0: independent, 1: "
    "fully determined). 'By chance' is the value of independent choices with so few flows.",
    page_only=True,
)


def _time(time_ns: float | None, resolution_ns: float = 0) -> Cell:
    return NOT_MEASURED if time_ns is None else Value(time_ns, Unit.NS, resolution_ns)
