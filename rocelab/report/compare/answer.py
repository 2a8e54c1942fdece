"""The best scheme of a comparison, by how much, and whether chance alone could make the
difference."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import partial

from rocelab.base.quantities import Unit, bandwidth, ratio, share
from rocelab.base.statistics import Spread
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import sentence
from rocelab.report.answers.compared import compared_bars, compared_cards, side_by_side
from rocelab.report.compare import plots
from rocelab.report.compare.cells import cells_of, queue_pairs, short_name
from rocelab.report.document import Answer, Figure
from rocelab.results.comparison import CellFigures, CellResult, Comparison, Status
from rocelab.results.difference import Finding, compared


def comparison_answer(comparison: Comparison) -> Answer:
    """The answer of a comparison; without a measured cell only that there is none."""
    best = _best(comparison.cells)
    if best is None:
        return Answer("No cell was measured.")
    cell, figures = best
    rivals = cells_of(comparison, cell.placement, cell.qps)
    second = _best([other for other in rivals if other.kind != cell.kind])
    text = sentence(_reached(cell, figures), _lead(cell, second), _left(comparison))
    schemes = side_by_side(_busbw(rivals), Unit.GB_PER_S)
    if len(comparison.qps) > 1:
        plot = Figure("answer", partial(plots.by_queue_pairs, comparison))
    else:
        title = f"busbw with {queue_pairs(cell.qps)}, {cell.placement}"
        plot = Figure("answer", partial(compared_bars, schemes, title))
    return Answer(text, tuple(compared_cards(schemes, "busbw", {})), plot)


def _busbw(cells: Sequence[CellResult]) -> Iterator[tuple[str, Spread]]:
    """Of each measured scheme its BusBW."""
    for cell in cells:
        if cell.figures is not None and cell.status is Status.MEASURED:
            yield short_name(cell.kind), cell.figures.busbw_gbs


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
        f"{short_name(cell.kind)} with {queue_pairs(cell.qps)}, {cell.placement}, is fastest: "
        f"busbw {bandwidth(figures.busbw_gbs.median)}, JCT ratio "
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
    name = short_name(second[0].kind)
    _, p_value, _, finding = compared(next_best, best)
    if finding is Finding.NOT_MEASURED:
        return ""
    if finding is Finding.SAME:
        return f"the same as {name}"
    runs = counted(len(best), "run")
    if finding is Finding.TOO_FEW:
        longer = statistics.median(next_best) / statistics.median(best) - 1
        too_few = f"{runs} each cannot tell that from chance"
        return f"{name}, the next, takes {share(longer)} longer, but {too_few}"
    if finding is Finding.NOT_TOLD_APART:
        return f"not told apart from {name}, the next, in {runs} each (p = {ratio(p_value or 0)})"
    saved = 1 - statistics.median(best) / statistics.median(next_best)
    return f"{share(saved)} less time than {name}, the next (p = {ratio(p_value or 0)})"


def _left(comparison: Comparison) -> str:
    left = [cell for cell in comparison.cells if cell.status is not Status.MEASURED]
    cells = counted(len(comparison.cells), "cell")
    verb = "has" if len(left) == 1 else "have"
    return f"{len(left)} of {cells} {verb} no figures that count" if left else ""
