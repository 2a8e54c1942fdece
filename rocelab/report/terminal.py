"""A drill's result as tables on a terminal.

In: a `DrillResult`. Out: what `print_result` writes to a rich console; colours go where they are
supported, and the text alone says everything.
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocelab.report.console import table
from rocelab.report.repeats import RepeatTable, printed, repeat_table
from rocelab.report.stages import stages_table
from rocelab.report.view import (
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
from rocelab.results.drill import DrillResult, Repeat
from rocelab.results.expectations import KPIS


def print_result(result: DrillResult, console: Console) -> None:
    """Everything a person wants at a glance; the figures of one repeat where a table needs one."""
    repeats = repeat_table(result)
    console.print(f"{result.title}  lab {result.lab['name']}", style="bold", highlight=False)
    for line in repeats.lines:
        console.print(line, style="red", markup=False, highlight=False, soft_wrap=True)
    chosen = representative(result)
    if chosen is None:
        console.print("no valid repeat: nothing was measured", style="red", highlight=False)
    else:
        number, repeat = chosen
        _print(console, _kpi_table(kpi_rows(result), repeats))
        if len(result.repeats) > 1:
            _print(console, printed(repeats))
            console.print(
                f"\nBelow: repeat {number}, nearest the median of full convergence.",
                highlight=False,
            )
        for shown in (
            _flow_table(repeat),
            *(stages_table(stages) for stages in repeat.stages if stages.switches),
            _fib_table(repeat),
            _health_table(repeat),
            *_balance_tables(repeat),
            _polarization_table(repeat),
        ):
            _print(console, shown)
    _print(console, _verdict_table(result, repeats))
    verdict = "passed" if result.passed else "failed"
    console.print(f"{result.name}: {verdict}", style="bold green" if result.passed else "bold red")


def _print(console: Console, shown: Table | None) -> None:
    if shown is not None and shown.row_count:
        console.print()
        console.print(shown)


def _kpi_table(rows: Iterable[KpiRow], repeats: RepeatTable) -> Table:
    many = repeats.valid > 1
    columns = ["", "median", "min to max", "CoV", "n"] if many else ["", "value"]
    shown = table(f"Overall, {repeats.summary}", columns)
    for row in rows:
        cells = [row.title, row.value]
        shown.add_row(*cells, row.range, row.cov, row.counted) if many else shown.add_row(*cells)
    return shown


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
    shown = table("Flows that lost packets to an event", columns, left=3)
    for row in flow_rows(repeat):
        shown.add_row(
            row.flow,
            row.path,
            row.event,
            row.lost,
            row.convergence,
            row.loss_derived,
            row.connectivity,
            row.rate_derived,
        )
    shown.caption = f"{len(untouched(repeat))} of {len(repeat.flows)} flows were not affected"
    return shown


def _fib_table(repeat: Repeat) -> Table:
    shown = table(
        "FIB changes by switch, time after the event",
        ["event", "switch", "next hops", "changes", "first", "last"],
        left=3,
        names=2,
    )
    for row in fib_rows(repeat):
        shown.add_row(row.event, row.node, row.widths, str(row.changes), row.first, row.last)
    return shown


def _health_table(repeat: Repeat) -> Table | None:
    if repeat.health is None:
        return None
    shown = table(
        f"SLIs in {repeat.health.samples} samples", ["", "objective", "worst", "where", "breaches"]
    )
    for row in health_rows(repeat.health):
        shown.add_row(row.title, row.objective, row.worst, row.where, row.breaches)
    return shown


def _balance_tables(repeat: Repeat) -> list[Table]:
    rows = tier_rows(repeat.hashing)
    if not rows:
        return []
    shown = table(
        "Load of links by tier, undisturbed traffic under each seed plan",
        ["tier", "seeds", "worst group (MMR)", "MMR", "JFI", "CoV", "unused", "random MMR"],
        left=3,
        names=2,
    )
    for row in rows:
        for cell in row.cells:
            shown.add_row(
                f"{row.tier} {row.direction}",
                cell.hashing,
                cell.worst,
                cell.mmr,
                cell.jfi,
                cell.cov,
                cell.unused,
                row.expected,
            )
    return [shown]


def _polarization_table(repeat: Repeat) -> Table | None:
    if not repeat.hashing:
        return None
    columns = ["choices", "seeds", "flows", "links used", "information", "by chance"]
    shown = table("Polarization: does a choice repeat the one before it?", columns, left=2, names=2)
    for row in polarization_rows(repeat.hashing):
        shown.add_row(
            row.stages, row.hashing, str(row.flows), row.used, row.information, row.by_chance
        )
    if not shown.row_count:
        shown.add_row("not applicable: no flow has two choices in a row here", "", "", "", "", "")
    return shown


def _verdict_table(result: DrillResult, repeats: RepeatTable) -> Table:
    shown = table("Expectations, every valid repeat", ["", "expected", "worst", ""], left=2)
    for verdict in result.verdicts:
        shown.add_row(
            KPIS[verdict.kpi].title,
            verdict.expectation,
            verdict.shown(),
            Text(repeats.verdict(verdict), "green" if verdict.passed else "bold red"),
        )
    return shown
