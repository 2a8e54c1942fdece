"""What programs on a lab's servers did: how they ended, what their connections carried, and the
figures that they printed, under faults too."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from rocelab.base.quantities import BPS_PER_GBS, Unit, axis_unit, duration
from rocelab.base.wording import counted
from rocelab.report.document import (
    Block,
    Column,
    Document,
    Figure,
    Note,
    Row,
    Section,
    Table,
    Tone,
    columns,
)
from rocelab.report.order import event_name
from rocelab.report.palette import EVENT, GRID, MEASURED
from rocelab.report.plots import figure_of, name_axis, number_event, styled
from rocelab.results.programs import (
    MetricSeries,
    ProgramReport,
    ProgramsRun,
    RankEnd,
    TcpConnection,
)
from rocelab.results.programs import p99 as p99_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MOST_CONNECTIONS = 20
MOST_LINKS = 20
MOST_METRICS = 3
"""Metrics that a plot shows."""

MOST_POINTS = 400
"""Intervals of goodput that a plot shows."""

NO_COURSE = "No connection carried anything, and no program printed a metric."
LINK_LIMITS = (
    "A link has sent everything that its port did, also of routing and others. Which links between "
    "switches a TCP connection crosses is the kernel's choice, by a hash of its socket that "
    "nothing outside reads: connections and what they resent are given of servers' links alone."
)
PROGRAM_LIMITS = (
    "Programs compute at this machine's speed, and TCP's timers run at its clock, whatever the "
    "dilation: no time of a program times the dilation is one of the modelled network.",
    "Stalls are what samples of the connections show; payload is the kernel's own count.",
)


def program_document(report: ProgramReport) -> Document:
    """What `rocelab run` prints when its programs have ended."""
    blocks: tuple[Block, ...] = (
        _ends(report),
        *_carried(report),
        *(Note(text, Tone.CAUTION) for text in report.warnings),
    )
    return Document("", (Note(_what(report)), *blocks))


def _what(report: ProgramReport) -> str:
    programs = _programs(report)
    bad = [rank for rank in report.ranks if rank.code]
    outcome = f"{len(bad)} of them failed" if bad else "none failed"
    return f"{programs} on lab {report.lab} for {duration(report.lasted_ns)}: {outcome}"


def _programs(report: ProgramReport) -> str:
    return counted(len(report.ranks), "program")


def _ends(report: ProgramReport) -> Table:
    return Table(
        "Programs that did not end well",
        (Column("rank", Unit.NUMBER), *columns(Unit.TEXT, "on", "how"), Column("after", Unit.NS)),
        tuple(
            (rank.rank, rank.name, ended_how(rank), rank.lasted_ns)
            for rank in report.ranks
            if rank.code != 0
        ),
    )


def ended_how(rank: RankEnd) -> str:
    """How a program ended, in words."""
    if rank.failed is not None:
        return f"not started: {rank.failed}"
    if rank.code is None:
        return "ended because another failed"
    return f"signal {-rank.code}" if rank.code < 0 else f"exit code {rank.code}"


def _carried(report: ProgramReport) -> tuple[Block, ...]:
    """What connections, links and UDP carried; nothing of what there was not."""
    blocks: list[Block] = [connections_table(report.connections, report.stall_bin_ns)]
    if report.links:
        blocks += [_links(report), Note(LINK_LIMITS)]
    if report.udp:
        blocks.append(_udp(report))
    return tuple(blocks)


def _links(report: ProgramReport) -> Table:
    several = any(use.network for use in report.links)
    return Table(
        "Links, by the counters of the ports that send",
        (
            *columns(Unit.TEXT, "link", "to"),
            *columns(Unit.TEXT, *["network"] * several),
            Column("sent", Unit.BYTES),
            Column("of its rate", Unit.SHARE),
            *columns(Unit.COUNT, "dropped by queue", "connections"),
            Column("resent", Unit.BYTES),
            Column("stalls", Unit.COUNT),
            Column("longest", Unit.NS),
        ),
        tuple(
            (
                *(use.link, use.receiver, *[use.network] * several, use.sent_bytes, use.share),
                *(use.queue_drops, use.connections, use.resent_bytes),
                *(use.stalls, use.longest_stall_ns),
            )
            for use in report.links
        ),
        names=2 + several,
        most=MOST_LINKS,
    )


def _udp(report: ProgramReport) -> Table:
    return Table(
        "UDP datagrams, by the servers' kernels",
        (Column("server"), *columns(Unit.COUNT, "sent", "received", "arrived and not taken")),
        tuple((row.server, row.sent, row.received, row.errors) for row in report.udp),
        most=MOST_LINKS,
    )


def connections_table(
    connections: Sequence[TcpConnection], stall_bin_ns: int, least_trips: int = 0
) -> Table:
    """TCP connections with their figures, those that delivered most first."""
    trips = f" and {counted(least_trips, 'round trip')}" if least_trips else ""
    several = any(connection.network for connection in connections)
    return Table(
        f"TCP connections, in the lab's clock; stalls of {duration(stall_bin_ns)}{trips} and more",
        (
            *columns(Unit.TEXT, "from", "to"),
            *columns(Unit.TEXT, *["network"] * several),
            Column("ports", Unit.FIGURE, unbroken=True),
            Column("delivered", Unit.BYTES),
            Column("goodput", Unit.BITS_PER_S),
            Column("resent", Unit.SHARE),
            Column("RTT", Unit.NS),
            Column("stalls", Unit.COUNT),
            Column("longest", Unit.NS),
        ),
        tuple(_connection(connection, several) for connection in connections),
        names=3 + several,
        most=MOST_CONNECTIONS,
    )


def _connection(connection: TcpConnection, several: bool) -> Row:
    return (
        connection.source,
        connection.destination,
        *[connection.network] * several,
        f"{connection.source_port}-{connection.destination_port}",
        connection.delivered_bytes,
        connection.goodput_bps,
        connection.resent_share,
        connection.rtt_us * 1000,
        len(connection.stalls),
        connection.longest_stall_ns or None,
    )


def programs_sections(name: str, run: ProgramsRun, repeat: str) -> Iterator[Section]:
    """The sections of a phase of programs; `repeat` names the run, if there are several."""
    yield Section(
        f"Programs{repeat}",
        (
            Note(
                f"{counted(len(run.report.ranks), 'program')}: `{shlex.join(run.report.command)}`"
            ),
            Figure(f"{name}-programs", partial(programs_plot, run), NO_COURSE),
            _events(run),
            _metrics(run),
            _ends(run.report),
            *(Note(text, Tone.CAUTION) for text in run.report.warnings),
        ),
    )
    yield Section(f"Connections{repeat}", _carried(run.report))


def _events(run: ProgramsRun) -> Table:
    return Table(
        "",
        (Column("event"), Column("at, lab", Unit.NS), Column("what")),
        tuple(
            (event_name(number), event.t_ns, event.title)
            for number, event in enumerate(run.events, 1)
        ),
        sortable=False,
    )


def _metrics(run: ProgramsRun) -> Table:
    return Table(
        "",
        (
            Column("what the programs printed"),
            Column("lines", Unit.COUNT),
            *columns(Unit.FIGURE, "median", "p99", "maximum"),
            Column("unit"),
        ),
        tuple(map(_metric, run.metrics)),
    )


def _metric(series: MetricSeries) -> Row:
    values = series.values
    figures = (median(values), p99_of(values), max(values)) if values else ()
    texts = tuple(f"{value:.4g}" for value in figures) or (None, None, None)
    return (series.name, len(values), *texts, series.unit)


@styled
def programs_plot(run: ProgramsRun) -> Drawing | None:
    """The metrics that programs printed, and the goodput of all connections, over time with the
    faults; None if there is neither."""
    metrics = [series for series in run.metrics if series.points][:MOST_METRICS]
    rates = goodput_gbs(run.report)
    panels = len(metrics) + bool(rates)
    if not panels:
        return None
    figure = figure_of(11, 0.5 + 1.9 * panels)
    axes = figure.subplots(panels, 1, sharex=True, squeeze=False)[:, 0]
    last_ns = max([run.report.began_ns + run.report.lasted_ns, *(at_ns for at_ns, _ in rates)])
    scale, unit = axis_unit(last_ns, Unit.NS)
    for axis, series in zip(axes, metrics, strict=False):
        times = [at_ns / scale for at_ns, _ in series.points]
        axis.plot(times, series.values, ".-", color=MEASURED, linewidth=0.8, markersize=4)
        name_axis(axis.yaxis, series.name, series.unit)
    if rates:
        times = [at_ns / scale for at_ns, _ in rates]
        axes[-1].step(times, [rate for _, rate in rates], color=MEASURED, linewidth=0.9)
        name_axis(axes[-1].yaxis, "TCP goodput", "GB/s")
    for axis in axes:
        _with_events(axis, run, scale, named=axis is axes[0])
    name_axis(axes[-1].xaxis, "time", unit, "lab")
    return figure


def _with_events(axis: Axes, run: ProgramsRun, scale: float, *, named: bool) -> None:
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    for number, event in enumerate(run.events, 1):
        axis.axvline(event.t_ns / scale, color=EVENT, linewidth=0.9, linestyle=(0, (2, 2)))
        if named:
            number_event(axis, number, event.t_ns / scale)


def goodput_gbs(report: ProgramReport) -> list[tuple[int, float]]:
    """What all connections delivered between samples, in GB/s, at the end of each interval: all
    samples, or at most MOST_POINTS intervals."""
    samples = report.delivered
    if not samples or not samples[-1][1]:
        return []
    step = 1 + len(samples) // MOST_POINTS
    chosen = [*samples[:-1:step], samples[-1]]
    return [
        (end_ns, (end - begin) * 8e9 / (end_ns - begin_ns) / BPS_PER_GBS)
        for (begin_ns, begin), (end_ns, end) in pairwise(chosen)
        if end_ns > begin_ns
    ]
