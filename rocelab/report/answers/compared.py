"""Figures side by side, each with its difference to the first: phases of a drill, schemes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit, axis_unit, change, formatted
from rocelab.base.statistics import Spread
from rocelab.report.document import MOST_FIGURES, Card
from rocelab.report.palette import GRID, INK, MEASURED, MUTED, PAPER
from rocelab.report.plots import figure_of, name_axis, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """A figure of what is compared."""

    name: str
    spread: Spread
    unit: Unit
    of_first: float
    """Its median over that of the first of its kind."""

    @property
    def value(self) -> str:
        return formatted(self.spread.median, self.unit)

    @property
    def difference(self) -> str:
        """`+3.1%`; empty for the first of a kind, and for what is equal to it."""
        return change(self.of_first - 1) if self.of_first != 1 else ""

    @property
    def extremes(self) -> str:
        """`16.3 GB/s to 18.5 GB/s`; empty if they are written alike."""
        low, high = (
            formatted(end, self.unit) for end in (self.spread.minimum, self.spread.maximum)
        )
        return f"{low} to {high}" if low != high else ""


def side_by_side(
    spreads: Iterable[tuple[str, Spread]], unit: Unit, kinds: Mapping[str, str] | None = None
) -> tuple[ComparedFigure, ...]:
    """The spread of each name, compared with the first, or with the first of its kind."""
    spreads = list(spreads)
    kind_of = {name: (kinds or {}).get(name, "") for name, _ in spreads}
    firsts: dict[str, float] = {}
    for name, spread in spreads:
        firsts.setdefault(kind_of[name], spread.median)
    return tuple(
        ComparedFigure(name, spread, unit, spread.median / first if first else 1.0)
        for name, spread in spreads
        for first in (firsts[kind_of[name]],)
    )


def compared_cards(
    figures: Sequence[ComparedFigure], title: str, missed: Mapping[str, str]
) -> Iterator[Card]:
    """The first and those that differ most from it, in their order. missed: by name what was
    expected of it."""
    others = sorted(figures[1:], key=lambda figure: -abs(figure.of_first - 1))[: MOST_FIGURES - 1]
    for figure in figures:
        if figure is figures[0] or figure in others:
            text = "; ".join(filter(None, (figure.difference, figure.extremes)))
            name = f"{title}, {figure.name}"
            yield Card(name, figure.value, text, missed.get(figure.name, ""))


@styled
def compared_bars(figures: Sequence[ComparedFigure], title: str) -> Drawing:
    """A bar for each median, a line from the least to the greatest, the difference to the first;
    of the modelled network."""
    most = max(figure.spread.maximum for figure in figures)
    scale, unit = axis_unit(most, figures[0].unit)
    drawing = figure_of(11, 1.0 + 0.32 * len(figures))
    axis = drawing.subplots()
    for row, figure in enumerate(figures):
        spread = figure.spread
        axis.barh(row, spread.median / scale, color=MEASURED, height=0.55)
        axis.hlines(row, spread.minimum / scale, spread.maximum / scale, colors=INK, linewidth=1.4)
        axis.annotate(
            f"{figure.value}  {figure.difference}",
            (spread.maximum / scale, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        )
    first = figures[0].spread.median / scale
    axis.axvline(first, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.set_yticks(range(len(figures)), [figure.name for figure in figures])
    axis.set_ylim(len(figures) - 0.4, -0.6)
    axis.set_xlim(0, 1.2 * most / scale or 1)
    axis.tick_params(axis="y", length=0)
    name_axis(axis.xaxis, title, unit, "modelled")
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    return drawing
