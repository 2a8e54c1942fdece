"""Prints a `SimulationReport` as tables on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from rocelab.base.units import format_duration, format_size
from rocelab.report.console import table
from rocelab.report.job_terminal import value_text
from rocelab.results.simulation import Engine, JobOutcome, PortModel, SimulationReport, TierUse

SHOWN_JOBS = 40
SHOWN_QUEUES = 10
SHOWN_PAUSES = 10


def print_report(report: SimulationReport, console: Console) -> None:
    """Print jobs, flows, packets, queues and pauses, the balance of links and the worst ones,
    events, and how the result was computed."""
    parts = (_jobs, _flow_times, _slowdown, _packets, _queues, _pauses, _links, _worst, _events)
    for shown in (part(report) for part in parts):
        if shown.row_count:
            console.print(shown)
            console.print()
    console.print(_method(report), highlight=False, soft_wrap=True)


def _jobs(report: SimulationReport) -> Table:
    names = list(dict.fromkeys(headline.name for job in report.jobs for headline in job.headlines))
    titles = {headline.name: headline.title for job in report.jobs for headline in job.headlines}
    shown = table(
        "Jobs, on the modelled network (medians of iterations)",
        ("job", "ranks", "sent", *(titles[name] for name in names), "lower bound"),
    )
    for job in report.jobs[:SHOWN_JOBS]:
        shown.add_row(
            job.name,
            f"{job.ranks:,}",
            format_size(job.payload_bytes),
            *(_headline(job, name) for name in names),
            format_duration(job.roofline_ns),
        )
    if len(report.jobs) > SHOWN_JOBS:
        shown.caption = f"and {len(report.jobs) - SHOWN_JOBS} more"
    return shown


def _headline(job: JobOutcome, name: str) -> str:
    for headline in job.headlines:
        if headline.name == name:
            return value_text(headline.modelled.median, headline.unit)
    return "never ends" if None in job.iterations_ns else "-"


def _flow_times(report: SimulationReport) -> Table:
    shown = table("Flow completion, transfer by transfer", ("", "mean", "p50", "p99", "highest"))
    found = report.flow_times
    if found is not None:
        for name, distribution, written in (
            ("time", found.time_ns, format_duration),
            ("slowdown", found.slowdown, "{:.2f}".format),
        ):
            values = (distribution.mean, distribution.p50, distribution.p99, distribution.maximum)
            shown.add_row(name, *(written(value) for value in values))
    return shown


def _slowdown(report: SimulationReport) -> Table:
    shown = table(
        "Slowdown of flows, by size",
        ("job", "up to", "flows", "p50", "p95", "p99"),
    )
    for job in report.jobs:
        if job.slowdown is None or len(job.slowdown.bins) == 1:
            continue
        for each in job.slowdown.bins:
            values = (f"{value:.2f}" for value in (each.p50, each.p95, each.p99))
            shown.add_row(job.name, format_size(each.largest_bytes), f"{each.flows:,}", *values)
    return shown


def _packets(report: SimulationReport) -> Table:
    names = ("data", "sent again", "out of order", "ACKs", "NAKs", "timeouts", "marks", "CNPs")
    shown = table("Packets", (*names, "drops", "lost by failures"), left=0, names=0)
    found = report.packets
    if found is not None:
        counts = (
            found.data_packets,
            found.retransmitted,
            found.out_of_order,
            found.acks,
            found.naks,
            found.timeouts,
            found.marks,
            found.cnps,
            found.drops,
            found.lost,
        )
        shown.add_row(*(f"{count:,}" for count in counts))
    return shown


def _queues(report: SimulationReport) -> Table:
    shown = table("Highest queues of switch ports", ("port", "bytes", "marks", "drops"))
    for queue in () if report.packets is None else report.packets.queues[:SHOWN_QUEUES]:
        shown.add_row(
            queue.port, format_size(queue.highest_bytes), f"{queue.marks:,}", f"{queue.drops:,}"
        )
    return shown


def _pauses(report: SimulationReport) -> Table:
    shown = table(
        "Pauses of lossless classes, by the port that stopped",
        ("port", "class", "asked by", "times", "in all", "longest", "held for it", "dropped"),
    )
    found = None if report.packets is None else report.packets.lossless
    if found is None or not found.links:
        return shown
    for link in found.links[:SHOWN_PAUSES]:
        shown.add_row(
            link.port,
            str(link.traffic_class),
            link.peer,
            f"{link.transitions:,}",
            format_duration(link.paused_ns),
            format_duration(link.longest_ns),
            format_size(link.held_max_bytes),
            f"{link.dropped_packets:,}",
        )
    shown.caption = (
        f"of all links {found.transitions:,} times, {format_duration(found.paused_ns)}; "
        f"{found.dropped_packets:,} packets dropped, {found.discarded_packets:,} by watchdogs"
    )
    return shown


def _links(report: SimulationReport) -> Table:
    shown = table(
        "Links between switches, beside uniform random hashing of as many flows",
        (
            "tier",
            "links",
            "unused",
            "MMR of flows",
            "random MMR",
            "MMR of bytes",
            "JFI",
            "mean use",
            "busiest",
        ),
    )
    by_key = {(tier.tier, tier.direction): tier for tier in report.tiers}
    for use in report.uses:
        if not use.balance.total:
            continue
        found = by_key.get((use.tier, use.direction))
        flows = None if found is None else found.all_links.mmr
        random = None if found is None or found.random is None else found.random.mmr
        shown.add_row(*_use(use, flows, random))
    return shown


def _use(use: TierUse, flows: float | None, random: float | None) -> tuple[str, ...]:
    whole = use.balance
    return (
        f"{use.tier} {use.direction}",
        f"{whole.links:,}",
        f"{whole.unused:,}",
        _number(flows),
        _number(random),
        _number(whole.mmr),
        _number(whole.jfi),
        f"{use.utilisation_mean:.0%}",
        f"{use.utilisation_max:.0%}",
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _worst(report: SimulationReport) -> Table:
    shown = table(
        "Most loaded links between switches", ("link", "sent by", "flows", "of mean"), left=2
    )
    for link in report.worst:
        shown.add_row(link.link, link.sender, f"{link.flows:,.4g}", f"{link.of_mean:.2f}")
    return shown


def _events(report: SimulationReport) -> Table:
    shown = table("What happened", ("", "at", "routed around", "back"))
    for event in report.events:
        shown.add_row(
            event.what,
            format_duration(event.start_ns),
            "-" if event.routed_ns is None else format_duration(event.routed_ns),
            "-" if event.end_ns is None else format_duration(event.end_ns),
        )
    return shown


def _method(report: SimulationReport) -> str:
    method, cost = report.method, report.cost
    exact = "exact" if method.eps == 0 else f"completions batched within {method.eps:.2%}"
    note = "queues, marks, pauses and drops are not in it"
    if method.engine is Engine.PACKETS:
        exact = f"packet by packet, ports {method.ports}, seed {method.seed}"
        note = f"hosts {'wake as in a lab' if method.ports is PortModel.LAB else 'take no time'}"
    elif method.engine is Engine.LINKS:
        exact = f"packet by packet, each link alone, seed {method.seed}"
        note = "a link does not know what happens behind it"
    took = sum(cost.seconds.values())
    return (
        f"{report.lab['name']}, scheme {report.lab['scheme']['kind']}, choice by {method.model}: "
        f"{method.flows:,} flows, {method.transfers:,} transfers, {method.solves:,} solves "
        f"({exact}{', each proven max-min fair' if method.proven else ''}) in "
        f"{took:.1f} s and {cost.peak_memory_bytes / 2**30:,.2f} GiB. "
        f"Engine {method.engine}: {note}. {report.without_times}"
    ).rstrip()
