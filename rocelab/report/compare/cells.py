"""The cells of a comparison: their names, their loads, the links that they used."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.base.wording import counted
from rocelab.labfile.schemes.scheme_spec import SCHEMES
from rocelab.planning.fabric import Direction
from rocelab.results.comparison import (
    CellFigures,
    CellResult,
    Comparison,
    ComparisonRun,
    Status,
    TierFigures,
)


def name_of(kind: str) -> str:
    """The name of a scheme."""
    return SCHEMES[kind].title if kind in SCHEMES else kind


def short_name(kind: str) -> str:
    """The name of a scheme without what is in brackets: `E-ECMP`."""
    return name_of(kind).partition(" (")[0]


def queue_pairs(qps: int) -> str:
    """`1 QP`, `4 QPs`."""
    return counted(qps, "QP")


def cells_of(comparison: Comparison, placement: str, qps: int) -> list[CellResult]:
    """The schemes of a placement and number of queue pairs."""
    return [cell for cell in comparison.cells if (cell.placement, cell.qps) == (placement, qps)]


def worst_tier(figures: CellFigures) -> TierFigures | None:
    """The tier and direction of the highest MMR."""
    known = [tier for tier in figures.tiers if tier.mmr is not None]
    return max(known, key=lambda tier: tier.mmr or 0.0) if known else None


def cell_name(cell: CellResult) -> str:
    """`ecmp, 4 QPs, contiguous`; with a star if its figures do not count."""
    return f"{cell.kind}, {queue_pairs(cell.qps)}, {cell.placement}{flag(cell)}"


def shown_run(cell: CellResult) -> ComparisonRun | None:
    """The run whose links are drawn: the first valid one, or the first; None without runs."""
    return next((run for run in cell.runs if run.valid), next(iter(cell.runs), None))


def link_matrix(
    comparison: Comparison, placement: str, tier: str, direction: Direction
) -> tuple[list[str], list[str], list[list[float]]]:
    """Loads over their mean: a row per scheme and number of QPs (of the first run, valid or not),
    a column per link."""
    rows, columns, values = [], [], []
    for cell in comparison.cells:
        run = shown_run(cell)
        if cell.placement != placement or run is None:
            continue
        links = [link for link in run.links if (link.tier, link.direction) == (tier, direction)]
        mean = sum(link.packets for link in links) / len(links) if links else 0
        if mean:
            columns = [link.link for link in links]
            rows.append(f"{cell.kind}, {queue_pairs(cell.qps)}{flag(cell)}")
            values.append([link.packets / mean for link in links])
    return rows, columns, values


def tiers_of(comparison: Comparison) -> list[tuple[str, Direction]]:
    """The tiers and directions that carried something."""
    keys = [
        (tier.tier, tier.direction)
        for cell in comparison.cells
        if cell.figures is not None
        for tier in cell.figures.tiers
        if tier.mmr is not None
    ]
    return list(dict.fromkeys(keys))


def flags_used(cells: Sequence[CellResult]) -> bool:
    """Whether any cell has a star."""
    return any(flag(cell) and cell.figures is not None for cell in cells)


def flag(cell: CellResult) -> str:
    """A star if its figures do not count."""
    return "" if cell.status is Status.MEASURED else "*"
