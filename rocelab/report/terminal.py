"""Prints a `DrillResult` as rich tables; the text is complete without colours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocelab.report.console import table
from rocelab.report.jobs.terminal import figure_table, share_table
from rocelab.report.probes.terminal import (
    balance_tables,
    fib_table,
    flow_table,
    polarization_table,
)
from rocelab.report.repeats import RepeatTable, printed, repeat_tables
from rocelab.report.stages import stages_table
from rocelab.report.view import FigureRow, figure_rows, health_rows, representative, verdict_rows
from rocelab.results.drill import DrillResult, PhaseRun, PhaseSummary
from rocelab.results.health import HealthReport
from rocelab.results.probes import ProbeRun


def print_result(result: DrillResult, console: Console) -> None:
    """Print the figures of each phase, of one repeat where a table needs one, and the verdicts."""
    repeats = repeat_tables(result)
    console.print(f"{result.title}  lab {result.lab['name']}", style="bold", highlight=False)
    for note in result.notes:
        console.print(note, highlight=False)
    for of_phase in repeats:
        for line in of_phase.lines:
            console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    for number, repeat in enumerate(result.repeats, 1):
        for run in repeat:
            for error in run.errors:
                where = f", phase {result.where(run.phase)}" if result.where(run.phase) else ""
                line = f"repeat {number}{where}: {error}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    if result.has_jobs:
        _print(console, figure_table(result, repeats))
    for phase, of_phase in zip(result.phases, repeats, strict=True):
        _print_phase(result, phase, of_phase, console)
    _print(console, _verdict_table(result, repeats))
    style = "bold green" if result.passed else "bold red"
    console.print(f"{result.name}: {result.outcome}", style=style)


def _print_phase(
    result: DrillResult, phase: PhaseSummary, repeats: RepeatTable, console: Console
) -> None:
    chosen = representative(result, phase.name)
    if chosen is None and not phase.has_jobs:
        console.print("no valid repeat: nothing was measured", style="red", highlight=False)
        return
    if not phase.has_jobs:
        resolution_ns = max(run.resolution_ns for run in result.runs_of(phase.name) if run.valid)
        rows = figure_rows(phase.figures[0], phase.valid_runs, resolution_ns)
        _print(console, _kpi_table(rows, repeats))
    if len(result.repeats) > 1:
        _print(console, printed(repeats))
        if chosen is not None and not phase.has_jobs:
            nearest = f"Below: repeat {chosen[0]}, nearest the median of full convergence."
            console.print(f"\n{nearest}", highlight=False)
    if chosen is not None:
        for shown in _tables(chosen[1], chosen[0] if len(result.repeats) > 1 else None):
            _print(console, shown)


def _tables(run: PhaseRun, number: int | None) -> list[Table | None]:
    """The tables of one run; `number` is its repeat's if there are several."""
    measured = run.measured
    stages = [stages_table(stage) for stage in measured.stages if stage.switches]
    health = _health_table(measured.health)
    if isinstance(measured, ProbeRun):
        return [
            flow_table(measured),
            *stages,
            fib_table(measured),
            health,
            *balance_tables(measured),
            polarization_table(measured),
        ]
    fair = measured.fair_shares
    return [None if fair is None else share_table(fair, run.phase, number), *stages, health]


def _print(console: Console, shown: Table | None) -> None:
    if shown is not None and shown.row_count:
        console.print()
        console.print(shown)


def _kpi_table(rows: Iterable[FigureRow], repeats: RepeatTable) -> Table:
    many = repeats.valid > 1
    columns = ["", "median", "min to max", "CoV", "n"] if many else ["", "value"]
    what = f"Phase {repeats.phase}" if repeats.phase else "Overall"
    shown = table(f"{what}, {repeats.summary}", columns)
    for row in rows:
        cells = [row.title, row.value]
        shown.add_row(*cells, row.range, row.cov, row.counted) if many else shown.add_row(*cells)
    return shown


def _health_table(health: HealthReport | None) -> Table | None:
    if health is None:
        return None
    columns = ["", "objective", "worst", "where", "breaches"]
    shown = table(f"SLIs in {health.sampling}", columns)
    for row in health_rows(health):
        shown.add_row(row.title, row.objective, row.worst, row.where, row.breaches)
    return shown


def _verdict_table(result: DrillResult, repeats: Sequence[RepeatTable]) -> Table:
    rows = verdict_rows(result, repeats)
    several = any(row.phase for row in rows)
    columns = ["phase"] * several + ["", "expected", "worst", ""]
    names = 1 + several
    shown = table("Expectations, every valid repeat", columns, left=1 + names, names=names)
    for row in rows:
        met = Text(row.said, "green" if row.passed else "bold red")
        shown.add_row(*[row.phase] * several, row.title, row.expected, row.observed, met)
    return shown
