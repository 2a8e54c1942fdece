"""The result of a drill of jobs as tables on a terminal.

In: a `JobDrillResult`. Out: what `print_job_result` writes to a rich console; colours go where they
are supported, and the text alone says everything.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocelab.report.console import table
from rocelab.report.phases.view import (
    figure_rows,
    job_name,
    representative,
    share_rows,
    verdict_rows,
)
from rocelab.report.repeats import RepeatTable, phase_tables, printed
from rocelab.results.phases import JobDrillResult


def print_job_result(result: JobDrillResult, console: Console) -> None:
    """The jobs of all phases side by side, lab and model where there is one, and the verdicts."""
    console.print(f"{result.title}  lab {result.lab['name']}", style="bold", highlight=False)
    for note in result.notes:
        console.print(note, highlight=False)
    repeats = phase_tables(result)
    many = len(result.repeats) > 1
    for of_phase in repeats:
        for line in of_phase.lines:
            console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    for number, repeat in enumerate(result.repeats, 1):
        for run in repeat:
            for error in run.errors:
                line = f"repeat {number}, phase {run.phase}: {error}"
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    tables = [
        _figure_table(result, repeats),
        *(printed(of_phase) for of_phase in repeats if many),
        *_share_tables(result),
        _verdict_table(result, repeats),
    ]
    for shown in tables:
        if shown.row_count:
            console.print()
            console.print(shown)
    verdict = "passed" if result.passed else "failed"
    console.print(f"{result.name}: {verdict}", style="bold green" if result.passed else "bold red")


def _figure_table(result: JobDrillResult, repeats: Sequence[RepeatTable]) -> Table:
    title = "Figures by phase, of the modelled network"
    if len(result.repeats) > 1:
        title += ": median of the valid repeats (minimum to maximum)"
    columns = {
        job_name(phase.name, number, len(phase.jobs)) + _not_all(of_phase): figure_rows(
            job, phase.valid_runs
        )
        for phase, of_phase in zip(result.phases, repeats, strict=True)
        for number, job in enumerate(phase.jobs, 1)
    }
    shown = table(title, ["", *columns])
    cells: dict[str, dict[str, str]] = {}
    for column, rows in columns.items():
        for row in rows:
            spread = f" ({row.range})" if row.range and row.range != row.value else ""
            cells.setdefault(row.title, {})[column] = row.value + spread
    for name, of_column in cells.items():
        shown.add_row(name, *(of_column.get(column, "") for column in columns))
    return shown


def _not_all(repeats: RepeatTable) -> str:
    """What a column's heading says of a phase that did not go well in every repeat."""
    return f": {repeats.summary}" if repeats.failed or repeats.valid < len(repeats.rows) else ""


def _share_tables(result: JobDrillResult) -> list[Table]:
    tables = []
    for phase in result.phases:
        chosen = representative(result, phase.name)
        if chosen is None or chosen[1].fair_shares is None:
            continue
        number, run = chosen
        assert run.fair_shares is not None
        title = f"DCQCN in the lab and by its equations, phase {phase.name}"
        if len(result.repeats) > 1:
            title += f", repeat {number}"
        shown = table(title, ["", "lab", "model"])
        for row in share_rows(run.fair_shares):
            shown.add_row(row.title, row.lab, row.model)
        tables.append(shown)
    return tables


def _verdict_table(result: JobDrillResult, repeats: Sequence[RepeatTable]) -> Table:
    shown = table(
        "Expectations, every valid repeat", ["phase", "", "expected", "worst", ""], left=3, names=2
    )
    for row in verdict_rows(result, repeats):
        met = Text(row.said, "green" if row.passed else "bold red")
        shown.add_row(row.phase, row.title, row.expected, row.observed, met)
    return shown
