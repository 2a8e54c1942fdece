"""A phase of jobs as sections of a document: the jobs, their model, pauses, queues and links."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial

from rocelab.base.quantities import Unit, change, duration, share
from rocelab.base.wording import counted
from rocelab.report.document import (
    Block,
    Column,
    Figure,
    Note,
    Section,
    Table,
    Tone,
    Toned,
    columns,
)
from rocelab.report.figures import FigureRow, figure_rows, figures_table
from rocelab.report.jobs import plots
from rocelab.report.jobs.tables import pause_table, propagation_table, share_rows
from rocelab.report.jobs.text import job_name, job_text, lossless_text
from rocelab.report.repeats import RepeatTable, representative
from rocelab.results.drill import DrillResult, FigureSummary, JobsRun, PhaseSummary
from rocelab.results.job import JobReport
from rocelab.results.kpis import NOT_MEASURED
from rocelab.results.shares import FairShares

MOST_QUEUES = 12
_NEVER = re.compile("in 0 of ")


def figures_by_phase(result: DrillResult, repeats: Sequence[RepeatTable]) -> Section:
    """The figures of all phases, or of their jobs, side by side, with the difference to the first
    of the same pattern; those that are yes, no, 0 or not measured everywhere are only named."""
    has_jobs = result.has_jobs
    title = f"Figures by phase, {'modelled' if has_jobs else 'lab'}"
    if len(result.repeats) > 1:
        title += ": medians (minimum to maximum)"
    summaries = {
        job_name(phase.name, number, len(phase.figures)) + _not_all(of_phase): (
            figure_rows(figures, phase.valid_runs, result.resolution_of(phase.name)),
            figures,
            _pattern(result, phase, number),
        )
        for phase, of_phase in zip(result.phases, repeats, strict=True)
        if phase.has_jobs or not has_jobs
        for number, figures in enumerate(phase.figures, 1)
    }
    firsts = _first_medians([(figures, pattern) for _, figures, pattern in summaries.values()])
    cells: dict[str, dict[str, str]] = {}
    names: dict[str, str] = {}
    for column, (rows, figures, pattern) in summaries.items():
        for row in rows:
            names[row.title] = row.name
            cell = _figure(row, figures, firsts.get((pattern, row.name)))
            cells.setdefault(row.title, {})[column] = cell
    zero = [
        title
        for title, name in names.items()
        if all(_is_zero(figures, name) for _, figures, _ in summaries.values())
    ]
    alike = {**_alike(cells), "0 in every phase": zero}
    folded = {title for titles in alike.values() for title in titles}
    table = Table(
        "",
        (Column(""), *columns(Unit.FIGURE, *summaries)),
        tuple(
            (name, *(of_column.get(column, "") for column in summaries))
            for name, of_column in cells.items()
            if name not in folded
        ),
        caption="; ".join(f"{what}: {', '.join(of)}" for what, of in alike.items() if of),
        sortable=False,
    )
    return Section(title, (table,), page_only=not has_jobs)


def _alike(cells: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """The titles of rows whose cells are all yes, no or not measured, by what they are."""
    texts = {title: set(of_column.values()) for title, of_column in cells.items()}
    return {
        "yes in every phase": [title for title, text in texts.items() if text == {"yes"}],
        "no in every phase": [
            title for title, text in texts.items() if all(map(_NEVER.match, text))
        ],
        "not measured in any phase": [
            title for title, text in texts.items() if text == {NOT_MEASURED}
        ],
    }


def _pattern(result: DrillResult, phase: PhaseSummary, number: int) -> str:
    """The pattern of a phase's job, from 1; empty without a valid run or for probes."""
    chosen = representative(result, phase.name) if phase.has_jobs else None
    return "" if chosen is None else chosen[1].reports[number - 1].title


def _first_medians(
    summaries: Sequence[tuple[FigureSummary, str]],
) -> dict[tuple[str, str], float]:
    """The median of each figure in the first that has it, by the pattern of the job: jobs of
    different patterns are not compared."""
    firsts: dict[tuple[str, str], float] = {}
    for figures, pattern in summaries:
        for name, spread in figures.spread.items():
            firsts.setdefault((pattern, name), spread.median)
    return firsts


def _figure(row: FigureRow, figures: FigureSummary, first: float | None) -> str:
    """`12 GB/s (11 to 13 GB/s), -50%`."""
    spread = f" ({_shorter(row.range)})" if row.range and row.range != row.value else ""
    if not first or row.name not in figures.spread:
        return row.value + spread
    median = figures.spread[row.name].median
    return row.value + spread + (f", {change(median / first - 1)}" if median != first else "")


def _shorter(extremes: str) -> str:
    """`11 GB/s to 13 GB/s` with the unit once."""
    low, _, high = extremes.partition(" to ")
    (least, _, unit), (_, _, same) = low.partition(" "), high.partition(" ")
    return f"{least} to {high}" if unit and unit == same else extremes


def _is_zero(figures: FigureSummary, name: str) -> bool:
    """Whether a figure is 0 in every run, or is none of these."""
    spread = figures.spread.get(name)
    if spread is not None:
        return spread.minimum == spread.maximum == 0
    return name not in figures.truths and name not in figures.unmeasured


def _not_all(repeats: RepeatTable) -> str:
    """The note in a column's heading for a phase with failed or invalid repeats."""
    return f": {repeats.summary}" if repeats.failed or repeats.valid < len(repeats.rows) else ""


def jobs_sections(phase: PhaseSummary, run: JobsRun, repeat: str) -> list[Section]:
    """The sections of a phase's jobs; `repeat` names the run that they show, if there are
    several."""
    fair, devices = run.fair_shares, run.reports[0]
    return [
        *([] if fair is None else [_fair_shares(fair, devices, phase.name, repeat)]),
        _jobs(phase, run),
        *_lossless(devices, phase.name),
        _counters(devices),
    ]


def _fair_shares(fair: FairShares, report: JobReport, phase: str, repeat: str) -> Section:
    """Lab and model side by side."""
    return Section(
        f"DCQCN in the lab and by its equations, phase {phase}{repeat}",
        (
            Note(
                "Points are what the lab measured, lines what the numerical model says with the "
                "same parameters, marking line, rate, packet size and a feedback delay of "
                f"{duration(fair.port.feedback_ns)}, the lab's round trip without congestion. "
                "Shares are fair once every sender's rate over the last "
                f"{duration(fair.window_ns)} stays within {share(fair.tolerance)} of the mean.",
                page_only=True,
            ),
            Figure(f"{phase}-fair", partial(plots.fair_shares_plot, fair, report)),
            Table(
                "",
                (Column("times modelled"), *columns(Unit.FIGURE, "in the lab", "by the model")),
                share_rows(fair),
                sortable=False,
            ),
        ),
    )


def _jobs(phase: PhaseSummary, run: JobsRun) -> Section:
    devices, many = run.reports[0], len(run.reports)
    blocks: list[Block] = []
    if many > 1:
        text = "at the same time; the counters of switches cover all of them."
        blocks.append(Note(f"{counted(many, 'job')} {text}"))
    blocks.append(_events(devices))
    blocks.append(Figure(f"{phase.name}-loads", partial(plots.link_loads_plot, devices)))
    for number, (figures, report) in enumerate(zip(phase.figures, run.reports, strict=True), 1):
        of_job: list[Block] = [Note(f"{job_text(report.job)}.")]
        if run.fair_shares is None:
            name = f"{phase.name}-{number}-progress"
            of_job.append(Figure(name, partial(plots.progress_plot, report)))
        of_job.append(figures_table(phase, figures))
        name = job_name(phase.name, number, many)
        blocks += [Section(name, tuple(of_job))] if many > 1 else of_job
    return Section("Jobs", tuple(blocks), page_only=True)


def _events(report: JobReport) -> Table:
    return Table(
        "",
        (
            Column("event", Unit.NUMBER),
            Column("what"),
            Column("after the start of the jobs, lab", Unit.NS),
        ),
        tuple((number, event.title, event.t_ns) for number, event in enumerate(report.events, 1)),
        sortable=False,
    )


def _lossless(report: JobReport, name: str) -> list[Section]:
    text = lossless_text(report)
    if not text:
        return []
    paused = Section("Ports that were paused", (pause_table(report, ""),), folded=True)
    return [
        Section(
            "Lossless classes",
            (
                Note(text),
                Figure(f"{name}-pauses", partial(plots.pauses_plot, report)),
                propagation_table(report),
                paused,
            ),
            page_only=True,
        )
    ]


def _counters(report: JobReport) -> Section:
    """What switches and endpoints counted, to look up."""
    tables = (
        ("Queues of switch ports, the deepest first", _queues(report)),
        ("Links between switches", links_table(report)),
        ("What devices and endpoints counted", _checks(report)),
    )
    folded = tuple(Section(title, (table,), folded=True) for title, table in tables)
    return Section("Counters", folded, page_only=True)


def _queues(report: JobReport) -> Table:
    deepest = sorted(report.queues, key=lambda queue: -(queue.depth_max_bytes or 0))
    return Table(
        "",
        (
            Column("port"),
            Column("class", Unit.NUMBER),
            *columns(Unit.COUNT, "packets", "marked", "dropped"),
            Column("deepest", Unit.BYTES),
        ),
        tuple(
            (
                report.fabric.port_name(queue.node, queue.interface),
                queue.traffic_class,
                queue.packets,
                queue.marked,
                queue.dropped_packets,
                queue.depth_max_bytes,
            )
            for queue in deepest[:MOST_QUEUES]
        ),
    )


def links_table(report: JobReport) -> Table:
    """Links between switches that carried the job."""
    return Table(
        "",
        (
            *columns(Unit.TEXT, "link", "direction"),
            Column("packets", Unit.COUNT),
            Column("share of its tier", Unit.SHARE),
        ),
        tuple(
            (link.link, link.direction.value, link.packets, link.share)
            for link in report.links
            if link.packets and not link.tier.startswith("server")
        ),
    )


def _checks(report: JobReport) -> Table:
    agree, differ = Toned("agree", Tone.GOOD), Toned("differ", Tone.BAD)
    return Table(
        "",
        (Column("count"), *columns(Unit.FIGURE, "one side", "other side"), Column("")),
        tuple(
            (
                check.name,
                f"{check.left} {check.left_count:,}",
                f"{check.right} {check.right_count:,}",
                agree if check.agrees else differ,
            )
            for check in report.accounting
        ),
    )
