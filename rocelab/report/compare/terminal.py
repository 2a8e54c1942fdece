"""Prints a `Comparison` as rich tables; the text is complete without colours."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocelab.report.compare.view import Block, anomalies, blocks, count, name_of, repeatability
from rocelab.report.console import table
from rocelab.results.comparison import Comparison, Status


def print_comparison(found: Comparison, console: Console) -> None:
    """A table per placement and number of queue pairs, what went wrong, how repeatable it was."""
    job = found.cells[0].job
    console.print(
        f"lab {found.lab['name']}: {job['pattern']} of {job['size']} over {job['ranks']} ranks, "
        f"dilation {found.dilation:g}",
        style="bold",
        highlight=False,
    )
    for block in blocks(found):
        console.print()
        console.print(_table(block))
    console.print("MMR and JFI are of the tier and direction with the highest MMR.")
    for line in anomalies(found):
        console.print(line, style="yellow", markup=False, highlight=False, soft_wrap=True)
    console.print(repeatability(found), highlight=False, soft_wrap=True)
    console.print(_best(found), style="bold", highlight=False)


def _table(block: Block) -> Table:
    shown = table(
        block.title,
        (
            "load balancing",
            "MMR",
            "JFI",
            "OOO, pkt/s",
            "retx/s",
            "goodput",
            "BusBW, Gb/s",
            "JCT ratio",
            "marked",
            "dropped",
            "",
        ),
    )
    for row in block.loads:
        mark = row.mark.partition(":")[0]
        shown.add_row(
            row.config,
            row.mmr,
            row.jfi,
            row.out_of_order,
            row.retransmissions,
            row.goodput,
            row.busbw,
            row.jct_ratio,
            row.marks,
            row.drops,
            Text(mark, "bold red"),
        )
    return shown


def _best(found: Comparison) -> str:
    measured = [
        (cell.figures.jct_ratio.median, cell)
        for cell in found.cells
        if cell.figures is not None and cell.status is Status.MEASURED
    ]
    if not measured:
        return "No cell was measured."
    ratio, cell = min(measured, key=lambda pair: pair[0])
    return (
        f"Nearest to the lower bound: {name_of(cell.kind)}, {count(cell.qps)}, {cell.placement}, "
        f"JCT ratio {ratio:.2f}"
    )
