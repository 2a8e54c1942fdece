"""The best scheme of a comparison, by how much, and whether chance alone could make the
difference."""

from __future__ import annotations

import statistics
from functools import partial

from rocelab.base.quantities import bandwidth, ratio, share
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import sentence
from rocelab.report.compare import plots
from rocelab.report.compare.cells import cells_of, name_of, queue_pairs, worst_tier
from rocelab.report.document import Answer, Card, Figure
from rocelab.results.comparison import CellFigures, CellResult, Comparison, Status
from rocelab.results.difference import Finding, compared


def comparison_answer(comparison: Comparison) -> Answer:
    """The answer of a comparison; without a measured cell only that there is none."""
    plot = Figure("answer", partial(plots.by_queue_pairs, comparison))
    best = _best(comparison.cells)
    if best is None:
        return Answer("No cell was measured.", (), plot)
    cell, figures = best
    rivals = cells_of(comparison, cell.placement, cell.qps)
    second = _best([other for other in rivals if other.kind != cell.kind])
    text = sentence(_reached(cell, figures), _lead(cell, second), _left(comparison))
    return Answer(text, tuple(_cards(cell, figures, second)), plot)


def _best(
    cells: list[CellResult] | tuple[CellResult, ...],
) -> tuple[CellResult, CellFigures] | None:
    """The measured cell with the lowest JCT ratio."""
    measured = [
        (cell, cell.figures)
        for cell in cells
        if cell.figures is not None and cell.status is Status.MEASURED
    ]
    return min(measured, key=lambda pair: pair[1].jct_ratio.median, default=None)


def _reached(cell: CellResult, figures: CellFigures) -> str:
    return (
        f"{name_of(cell.kind)} with {queue_pairs(cell.qps)}, {cell.placement}, is nearest to the "
        f"lower bound: busbw {bandwidth(figures.busbw_gbs.median)}, JCT ratio "
        f"{ratio(figures.jct_ratio.median)}"
    )


def _lead(cell: CellResult, second: tuple[CellResult, CellFigures] | None) -> str:
    """`3.2% less time than ECMP, the next (p = 0.02)`, or that the two are not told apart."""
    if second is None:
        return ""
    best, next_best = (
        [statistics.median(run.jct_ratio) for run in one.runs if run.valid and run.jct_ratio]
        for one in (cell, second[0])
    )
    name = name_of(second[0].kind)
    _, p_value, _, finding = compared(next_best, best)
    if finding is Finding.NOT_MEASURED:
        return ""
    if finding is Finding.SAME:
        return f"the same as {name}"
    runs = counted(len(best), "run")
    if finding is Finding.TOO_FEW:
        return f"too few runs ({len(best)}) to tell it apart from {name}, the next"
    if finding is Finding.NOT_TOLD_APART:
        return f"not told apart from {name}, the next, in {runs} each (p = {ratio(p_value or 0)})"
    saved = 1 - statistics.median(best) / statistics.median(next_best)
    return f"{share(saved)} less time than {name}, the next (p = {ratio(p_value or 0)})"


def _left(comparison: Comparison) -> str:
    left = [cell for cell in comparison.cells if cell.status is not Status.MEASURED]
    cells = counted(len(comparison.cells), "cell")
    return f"{len(left)} of {cells} have no figures that count" if left else ""


def _cards(
    cell: CellResult, figures: CellFigures, second: tuple[CellResult, CellFigures] | None
) -> list[Card]:
    name = name_of(cell.kind)
    cards = [
        Card(f"BusBW, {name}", bandwidth(figures.busbw_gbs.median)),
        Card(f"JCT ratio, {name}", ratio(figures.jct_ratio.median)),
    ]
    if second is not None:
        other, of_other = second
        cards.append(Card(f"BusBW, {name_of(other.kind)}", bandwidth(of_other.busbw_gbs.median)))
    worst = worst_tier(figures)
    if worst is not None and worst.mmr is not None:
        cards.append(Card(f"MMR, {worst.tier} {worst.direction}", ratio(worst.mmr)))
    else:
        cards.append(Card("Effective Goodput", share(figures.goodput_share)))
    return cards
