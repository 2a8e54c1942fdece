"""The plot of the convergence table: every failure a dot, a panel per fault class.

In: a `ConvergenceTable`. Out: SVG text, the same bytes for the same data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bench.convergence.document import CellResult, ConvergenceTable
from bench.convergence.plan import PLAN, Cell, FaultClass, Place, Site
from report.plots import GRID, INK, MS, MUTED, PLANS, figure_of, styled, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 2
LEAST_MS = 0.5
"""Where a failure without loss is drawn: no time below a packet interval is known."""

COLOURS = {
    Place.RACK: PLANS[0],
    Place.TRUNK: PLANS[1],
    Place.NIC: PLANS[2],
    Place.SPINE: PLANS[3],
}


def plot(table: ConvergenceTable) -> str:
    """Small multiples: sites across, convergence time up on a logarithmic scale that all panels
    share, timers as bands."""
    return _draw(table)


@styled
def _draw(table: ConvergenceTable) -> str:
    by_name = {cell.name: cell for cell in table.cells if cell.failures}
    shown = [
        (fault, [site for site in sites if Cell(fault, site).name in by_name])
        for fault, sites in PLAN
    ]
    shown = [(fault, sites) for fault, sites in shown if sites]
    rows = max(1, -(-len(shown) // COLUMNS))
    figure = figure_of(11, 2.5 * rows)
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
    for axis in list(axes.flat)[len(shown) :]:
        axis.set_visible(False)
    for axis, (fault, sites) in zip(axes.flat, shown, strict=False):
        _panel(axis, fault, sites, by_name)
    for row in axes:
        row[0].set_ylabel("convergence, ms")
    return svg(figure, "convergence")


def _panel(
    axis: Axes, fault: FaultClass, sites: list[Site], by_name: Mapping[str, CellResult]
) -> None:
    axis.set_yscale("log")
    axis.set_title(fault.title)
    if fault.theory_ns is not None:
        earliest, latest = (time_ns / MS for time_ns in fault.theory_ns)
        axis.axhspan(earliest, latest, color=GRID, zorder=0)
        axis.axhline(latest, color=MUTED, linewidth=0.6, linestyle="--", zorder=1)
    for place, site in enumerate(sites):
        times = sorted(
            max(LEAST_MS, time_ns / MS)
            for one in by_name[Cell(fault, site).name].failures
            if (time_ns := one.failure.convergence_ns) is not None
        )
        # Sorted from left to right, so that equal times do not hide each other.
        spread = [place + 0.6 * ((n + 0.5) / len(times) - 0.5) for n in range(len(times))]
        axis.plot(
            spread, times, "o", markersize=2.6, color=COLOURS[site.place], alpha=0.8, zorder=2
        )
        if times:
            middle = times[(len(times) - 1) // 2]
            axis.hlines(middle, place - 0.35, place + 0.35, colors=INK, linewidth=1, zorder=3)
    labels = [
        f"{site.place_title.removesuffix(' link')}\n{site.fabric_title.split()[0].rstrip(',')}, "
        f"{site.fan_out}"
        for site in sites
    ]
    axis.set_xticks(range(len(sites)), labels, fontsize=6)
    axis.set_xlim(-0.6, len(sites) - 0.4)
    axis.grid(visible=True, axis="y", color=GRID, linewidth=0.5)
