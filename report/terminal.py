"""A drill's result as tables on a terminal.

In: a `DrillResult`. Out: what `print_result` writes to a rich console; colours go where they are
supported, and the text alone says everything.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from report.stages import stages_table
from report.tables import plain_table
from report.view import (
    KpiRow,
    fib_rows,
    flow_rows,
    health_rows,
    kpi_rows,
    polarization_rows,
    representative,
    tier_rows,
    untouched,
)
from scripts.drill.expectations import KPIS, format_kpi
from scripts.drill.result import DrillResult, Repeat


def print_result(result: DrillResult, console: Console) -> None:
    """Everything a person wants at a glance; the figures of one repeat where a table needs one."""
    valid = len(result.valid_repeats)
    console.print(f"{result.title}  lab {result.lab['name']}", style="bold", highlight=False)
    for number, repeat in enumerate(result.repeats, 1):
        for problem in repeat.problems:
            console.print(f"repeat {number} is invalid: {problem}", style="red", highlight=False)
    chosen = representative(result)
    if chosen is None:
        console.print("no valid repeat: nothing was measured", style="red", highlight=False)
    else:
        number, repeat = chosen
        _print(console, _kpi_table(kpi_rows(result), valid))
        if len(result.repeats) > 1:
            console.print(
                f"\nBelow: repeat {number}, nearest the median of full convergence.",
                highlight=False,
            )
        for table in (
            _flow_table(repeat),
            *(stages_table(stages) for stages in repeat.stages if stages.switches),
            _fib_table(repeat),
            _health_table(repeat),
            *_balance_tables(repeat),
            _polarization_table(repeat),
        ):
            _print(console, table)
    _print(console, _verdict_table(result))
    verdict = "passed" if result.passed else "failed"
    console.print(f"{result.name}: {verdict}", style="bold green" if result.passed else "bold red")


def _print(console: Console, table: Table | None) -> None:
    if table is not None and table.row_count:
        console.print()
        console.print(table)


def _kpi_table(rows: Iterable[KpiRow], repeats: int) -> Table:
    many = repeats > 1
    columns = ["", "median", "min to max", "CoV", "n"] if many else ["", "value"]
    table = plain_table(f"Overall, {repeats} valid repeat{'s' if many else ''}", columns)
    for row in rows:
        cells = [row.title, row.value]
        table.add_row(*cells, row.range, row.cov, str(row.n)) if many else table.add_row(*cells)
    return table


def _flow_table(repeat: Repeat) -> Table:
    columns = [
        "flow",
        "path",
        "event",
        "lost",
        "convergence",
        "loss-derived",
        "no connectivity",
        "rate-derived",
    ]
    table = plain_table("Flows that lost packets to an event", columns, left=3)
    for row in flow_rows(repeat):
        table.add_row(
            row.flow,
            row.path,
            row.event,
            row.lost,
            row.convergence,
            row.loss_derived,
            row.connectivity,
            row.rate_derived,
        )
    table.caption = f"{len(untouched(repeat))} of {len(repeat.flows)} flows were not affected"
    table.caption_justify = "left"
    return table


def _fib_table(repeat: Repeat) -> Table:
    table = plain_table(
        "FIB changes by switch, time after the event",
        ["event", "switch", "next hops", "changes", "first", "last"],
        left=3,
    )
    for row in fib_rows(repeat):
        table.add_row(row.event, row.node, row.widths, str(row.changes), row.first, row.last)
    return table


def _health_table(repeat: Repeat) -> Table | None:
    if repeat.health is None:
        return None
    table = plain_table(
        f"SLIs in {repeat.health.samples} samples", ["", "objective", "worst", "where", "breaches"]
    )
    for row in health_rows(repeat.health):
        table.add_row(row.title, row.objective, row.worst, row.where, row.breaches)
    return table


def _balance_tables(repeat: Repeat) -> list[Table]:
    rows = tier_rows(repeat.hashing)
    if not rows:
        return []
    table = plain_table(
        "Load of links by tier, undisturbed traffic under each seed plan",
        ["tier", "seeds", "worst group (MMR)", "MMR", "JFI", "CoV", "unused", "random MMR"],
        left=3,
    )
    for row in rows:
        for cell in row.cells:
            table.add_row(
                f"{row.tier} {row.direction}",
                cell.hashing,
                cell.worst,
                cell.mmr,
                cell.jfi,
                cell.cov,
                cell.unused,
                row.expected,
            )
    return [table]


def _polarization_table(repeat: Repeat) -> Table | None:
    if not repeat.hashing:
        return None
    columns = ["choices", "seeds", "flows", "links used", "information", "by chance"]
    table = plain_table("Polarization: does a choice repeat the one before it?", columns, left=2)
    for row in polarization_rows(repeat.hashing):
        table.add_row(
            row.stages, row.hashing, str(row.flows), row.used, row.information, row.by_chance
        )
    if not table.row_count:
        table.add_row("not applicable: no flow has two choices in a row here", "", "", "", "", "")
    return table


def _verdict_table(result: DrillResult) -> Table:
    table = plain_table("Expectations, every valid repeat", ["", "expected", "worst", ""], left=2)
    for verdict in result.verdicts:
        table.add_row(
            KPIS[verdict.kpi].title,
            verdict.expectation,
            format_kpi(verdict.kpi, verdict.observed),
            "[green]met[/]" if verdict.passed else "[bold red]not met[/]",
        )
    return table
