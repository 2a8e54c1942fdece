"""The result of a drill of jobs as tables on a terminal.

In: a `JobDrillResult`. Out: what `print_job_result` writes to a rich console; colours go where they
are supported, and the text alone says everything.
"""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from report.phases.view import figure_rows, job_name, representative, share_rows, verdict_rows
from report.tables import plain_table
from scripts.drill.phases.result import JobDrillResult


def print_job_result(result: JobDrillResult, console: Console) -> None:
    """The jobs of all phases side by side, lab and model where there is one, and the verdicts."""
    console.print(f"{result.title}  lab {result.lab['name']}", style="bold", highlight=False)
    for note in result.notes:
        console.print(note, highlight=False)
    for problem in result.problems():
        console.print(f"invalid: {problem}", style="red", highlight=False)
    for run in (run for repeat in result.repeats for run in repeat):
        for error in run.errors:
            console.print(f"phase {run.phase}: {error}", highlight=False)
    tables = [_figure_table(result), *_share_tables(result), _verdict_table(result)]
    for table in tables:
        if table.row_count:
            console.print()
            console.print(table)
    verdict = "passed" if result.passed else "failed"
    console.print(f"{result.name}: {verdict}", style="bold green" if result.passed else "bold red")


def _figure_table(result: JobDrillResult) -> Table:
    many = len(result.repeats) > 1
    title = "Figures by phase, of the modelled network"
    if many:
        title += f": median of the valid among {len(result.repeats)} repeats (minimum to maximum)"
    columns = {
        job_name(phase.name, number, len(phase.jobs)): figure_rows(job, phase.valid_runs)
        for phase in result.phases
        for number, job in enumerate(phase.jobs, 1)
    }
    table = plain_table(title, ["", *columns])
    cells: dict[str, dict[str, str]] = {}
    for column, rows in columns.items():
        for row in rows:
            spread = f" ({row.range})" if row.range and row.range != row.value else ""
            cells.setdefault(row.title, {})[column] = row.value + spread
    for name, of_column in cells.items():
        table.add_row(name, *(of_column.get(column, "") for column in columns))
    return table


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
        table = plain_table(title, ["", "lab", "model"])
        for row in share_rows(run.fair_shares):
            table.add_row(row.title, row.lab, row.model)
        tables.append(table)
    return tables


def _verdict_table(result: JobDrillResult) -> Table:
    table = plain_table(
        "Expectations, every valid repeat", ["phase", "", "expected", "worst", ""], left=3
    )
    for row in verdict_rows(result):
        met = "[green]met[/]" if row.passed else "[bold red]not met[/]"
        table.add_row(row.phase, row.title, row.expected, row.observed, met)
    return table
