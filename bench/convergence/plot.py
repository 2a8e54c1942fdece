"""The plot of the convergence table: a dot per failure, a panel per fault class.

Draws a `ConvergenceTable` as SVG text, with the same bytes for the same data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from bench.convergence.document import CellResult, ConvergenceTable
from bench.convergence.plan import PLAN, Cell, FaultClass, Site
from rocelab.report.palette import CATEGORIES, GRID, INK, MUTED
from rocelab.report.plots import MS, figure_of, styled, svg
from rocelab.sim.events.reaction import ReactionPlace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLUMNS = 2
LEAST_MS = 0.5
"""The position of a failure without loss: times below a packet interval are unknown."""

COLOURS = {
    ReactionPlace.RACK: CATEGORIES[0],
    ReactionPlace.TRUNK: CATEGORIES[1],
    ReactionPlace.NIC: CATEGORIES[2],
    ReactionPlace.SPINE: CATEGORIES[3],
}


def plot(table: ConvergenceTable) -> str:
    """Small multiples: sites on the x axis, convergence time on a common logarithmic y axis, timers
    as bands."""
    return _draw(table)


@styled
def _draw(table: ConvergenceTable) -> str:
    by_name = {cell.name: cell for cell in table.cells if cell.failures}
    groups = [
        (fault, [site for site in sites if Cell(fault, site).name in by_name])
        for fault, sites in PLAN
    ]
    groups = [(fault, sites) for fault, sites in groups if sites]
    panels = len(groups) + bool(table.releases)
    rows = max(1, -(-panels // COLUMNS))
    figure = figure_of(11, 2.5 * rows)
    axes = figure.subplots(rows, COLUMNS, squeeze=False, sharey=True)
    for axis in list(axes.flat)[panels:]:
        axis.set_visible(False)
    for axis, (fault, sites) in zip(axes.flat, groups, strict=False):
        _panel(axis, fault, sites, by_name)
    if table.releases:
        _releases_panel(axes.flat[len(groups)], table.releases)
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
        _failures(axis, by_name[Cell(fault, site).name], place, 0.6, COLOURS[site.place])
    labels = [
        f"{site.place_title.removesuffix(' link')}\n{site.fabric_title.split()[0].rstrip(',')}, "
        f"{site.fan_out}"
        for site in sites
    ]
    _label(axis, labels)


def _releases_panel(axis: Axes, cells: Sequence[CellResult]) -> None:
    """Cells on the x axis, with the releases of FRR side by side in different colours."""
    axis.set_yscale("log")
    axis.set_title("FRR releases side by side")
    names = list(dict.fromkeys(cell.name for cell in cells))
    releases = list(dict.fromkeys(cell.environment.frr_version for cell in cells))
    width = 0.9 / len(releases)
    for number, release in enumerate(releases):
        colour = CATEGORIES[number % len(CATEGORIES)]
        axis.plot([], [], "o", markersize=2.6, color=colour, label=f"FRR {release}")
        offset = (number - (len(releases) - 1) / 2) * width
        for cell in cells:
            if cell.environment.frr_version == release:
                _failures(axis, cell, names.index(cell.name) + offset, 0.8 * width, colour)
    axis.legend(fontsize=6)
    _label(axis, [name.replace(".", "\n").replace("-spine", "\nspine") for name in names])


def _failures(axis: Axes, cell: CellResult, middle: float, width: float, colour: str) -> None:
    """A cell's failures as dots, sorted from left to right so that equal times do not hide each
    other, and their median as a line."""
    times = sorted(
        max(LEAST_MS, time_ns / MS)
        for one in cell.failures
        if (time_ns := one.failure.convergence_ns) is not None
    )
    spread = [middle + width * ((n + 0.5) / len(times) - 0.5) for n in range(len(times))]
    axis.plot(spread, times, "o", markersize=2.6, color=colour, alpha=0.8, zorder=2)
    if times:
        median = times[(len(times) - 1) // 2]
        reach = 0.35 * width / 0.6
        axis.hlines(median, middle - reach, middle + reach, colors=INK, linewidth=1, zorder=3)


def _label(axis: Axes, labels: Sequence[str]) -> None:
    axis.set_xticks(range(len(labels)), labels, fontsize=6)
    axis.set_xlim(-0.6, len(labels) - 0.4)
    axis.grid(visible=True, axis="y", color=GRID, linewidth=0.5)
