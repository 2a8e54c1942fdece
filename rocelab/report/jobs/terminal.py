"""Phases of jobs in a `DrillResult` as rich tables; the text is complete without colours."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from rocelab.report.console import table
from rocelab.report.jobs.view import job_name, share_rows
from rocelab.report.repeats import RepeatTable
from rocelab.report.view import figure_rows
from rocelab.results.drill import DrillResult
from rocelab.results.shares import FairShares


def figure_table(result: DrillResult, repeats: Sequence[RepeatTable]) -> Table:
    """The jobs of all phases side by side."""
    title = "Figures by phase, of the modelled network"
    if len(result.repeats) > 1:
        title += ": median of the valid repeats (minimum to maximum)"
    columns = {
        job_name(phase.name, number, len(phase.figures)) + _not_all(of_phase): figure_rows(
            job, phase.valid_runs
        )
        for phase, of_phase in zip(result.phases, repeats, strict=True)
        if phase.has_jobs
        for number, job in enumerate(phase.figures, 1)
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
    """The note in a column's heading for a phase with failed or invalid repeats."""
    return f": {repeats.summary}" if repeats.failed or repeats.valid < len(repeats.rows) else ""


def share_table(fair: FairShares, phase: str, number: int | None) -> Table:
    """Lab and model side by side; `number` is the repeat's if there are several."""
    title = f"DCQCN in the lab and by its equations, phase {phase}"
    shown = table(title if number is None else f"{title}, repeat {number}", ["", "lab", "model"])
    for row in share_rows(fair):
        shown.add_row(row.title, row.lab, row.model)
    return shown
