"""The phases of a drill side by side, by one figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit, axis_unit, change
from rocelab.base.statistics import Spread
from rocelab.report.document import MOST_FIGURES, Card
from rocelab.report.palette import GRID, INK, MEASURED, MUTED, PAPER
from rocelab.report.plots import figure_of, name_axis, styled
from rocelab.results.drill import DrillResult, PhaseSummary
from rocelab.results.kpi import UNITS
from rocelab.results.kpis import KPIS, format_kpi

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


@dataclass(frozen=True, slots=True)
class ComparedPhase:
    """A phase and the KPI that phases are compared by. of_first: over the first phase's median."""

    name: str
    kpi: str
    spread: Spread
    of_first: float

    @property
    def value(self) -> str:
        return format_kpi(self.kpi, self.spread.median)

    @property
    def difference(self) -> str:
        """`+3.1%`; empty for the first phase."""
        return change(self.of_first - 1) if self.of_first != 1 else ""


def compared_phases(phases: Sequence[PhaseSummary], kpi: str | None) -> Iterator[ComparedPhase]:
    """The phases that have the KPI; none without one."""
    if kpi is None:
        return
    spreads = [
        (phase.name, spread)
        for phase in phases
        if (spread := phase.figures[0].spread.get(kpi)) is not None
    ]
    first = spreads[0][1].median
    for name, spread in spreads:
        yield ComparedPhase(name, kpi, spread, spread.median / first if first else 1.0)


def phase_cards(phases: Sequence[ComparedPhase], result: DrillResult) -> Iterator[Card]:
    """The first phase and those that differ most from it, in their order."""
    others = sorted(phases[1:], key=lambda phase: -abs(phase.of_first - 1))[: MOST_FIGURES - 1]
    missed = {
        (phase.name, verdict.kpi): f"expectation {verdict.expectation} not met"
        for phase in result.phases
        for verdict in phase.verdicts
        if not verdict.passed and verdict.observed is not None
    }
    for phase in phases:
        if phase is phases[0] or phase in others:
            spread = phase.spread
            ends = [format_kpi(phase.kpi, end) for end in (spread.minimum, spread.maximum)]
            extremes = "" if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
            title = f"{KPIS[phase.kpi].title}, {phase.name}"
            text = "; ".join(filter(None, (phase.difference, extremes)))
            yield Card(title, phase.value, text, missed.get((phase.name, phase.kpi), ""))


@styled
def phases_plot(phases: Sequence[ComparedPhase]) -> Drawing:
    """A bar per phase of the median, a line from the least to the greatest, the difference to the
    first phase."""
    kpi = KPIS[phases[0].kpi]
    most = max(phase.spread.maximum for phase in phases)
    scale, unit = axis_unit(most, Unit(UNITS[kpi.quantity]))
    figure = figure_of(11, 1.0 + 0.32 * len(phases))
    axis = figure.subplots()
    for row, phase in enumerate(phases):
        spread = phase.spread
        axis.barh(row, spread.median / scale, color=MEASURED, height=0.55)
        axis.hlines(row, spread.minimum / scale, spread.maximum / scale, colors=INK, linewidth=1.4)
        text = f"{phase.value}  {phase.difference}"
        axis.annotate(
            text,
            (spread.maximum / scale, row),
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            bbox={"facecolor": PAPER, "edgecolor": "none", "pad": 1},
        )
    axis.axvline(phases[0].spread.median / scale, color=MUTED, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.set_yticks(range(len(phases)), [phase.name for phase in phases])
    axis.set_ylim(len(phases) - 0.4, -0.6)
    axis.set_xlim(0, 1.2 * most / scale)
    axis.tick_params(axis="y", length=0)
    name_axis(axis.xaxis, f"{kpi.title.lower()}, median of each phase", unit, "modelled")
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    return figure
