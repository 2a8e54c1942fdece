"""A `ProbeRun` as rich tables; the text is complete without colours."""

from __future__ import annotations

from rich.table import Table

from rocelab.report.console import table
from rocelab.report.probes.view import (
    fib_rows,
    flow_rows,
    polarization_rows,
    tier_rows,
    untouched,
)
from rocelab.results.probes import ProbeRun


def flow_table(repeat: ProbeRun) -> Table:
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


def fib_table(repeat: ProbeRun) -> Table:
    shown = table(
        "FIB changes by switch, time after the event",
        ["event", "switch", "next hops", "changes", "first", "last"],
        left=3,
        names=2,
    )
    for row in fib_rows(repeat):
        shown.add_row(row.event, row.node, row.widths, str(row.changes), row.first, row.last)
    return shown


def balance_tables(repeat: ProbeRun) -> list[Table]:
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


def polarization_table(repeat: ProbeRun) -> Table | None:
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
