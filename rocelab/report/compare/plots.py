"""The plots of a comparison: BusBW and JCT ratio by queue pairs, JFI by scheme, loads of links.

Figures are in the style of `rocelab.report.plots`. Schemes differ in marker, line and hatch besides
colour, and the map of loads in lightness, so that everything is readable in grey.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rocelab.base.quantities import Unit
from rocelab.labfile.schemes.scheme_spec import SCHEMES
from rocelab.report.compare.cells import cells_of, link_matrix, short_name, tiers_of, worst_tier
from rocelab.report.palette import CATEGORIES, GRID, MUTED
from rocelab.report.plots import add_key, figure_of, fitting, name_axis, panels, styled
from rocelab.results.comparison import CellResult, Comparison, Status

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Marker, line and hatch: schemes differ in grey too.
_IN_TURN = (
    ("o", "-", ""),
    ("s", "--", "//"),
    ("^", "-.", ".."),
    ("D", ":", "\\\\"),
    ("v", (0, (5, 1)), "xx"),
    ("P", (0, (1, 1)), "--"),
    ("X", (0, (3, 1, 1, 1)), "++"),
    ("*", "-", "oo"),
)
_LOOKS = {
    kind: (colour, *look) for kind, colour, look in zip(SCHEMES, CATEGORIES, _IN_TURN, strict=False)
}
_OTHER = (CATEGORIES[-1], *_IN_TURN[-1])
MOST_COLUMNS = 96


@styled
def by_queue_pairs(comparison: Comparison) -> Figure | None:
    """BusBW and JCT ratio over the number of queue pairs, a line per scheme, a column per
    placement; bars go from the least to the greatest iteration."""
    if not any(cell.figures for cell in comparison.cells):
        return None
    figure = figure_of(11, 5.6)
    columns = len(comparison.placements)
    grid = figure.subplots(2, columns, sharex=True, sharey="row", squeeze=False)
    for column, placement in enumerate(comparison.placements):
        for row, name in enumerate(("busbw_gbs", "jct_ratio")):
            axis = grid[row][column]
            for kind in comparison.kinds:
                _line(axis, comparison, kind, placement, name)
            axis.grid(axis="y", color=GRID, linewidth=0.6)
        grid[0][column].set_title(f"{placement} placement")
        line_rate = comparison.nic_rate_bps / 8 / 10**9
        grid[0][column].axhline(
            line_rate, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)), label="a NIC's rate"
        )
        grid[1][column].axhline(1, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
        for axis in grid[:, column]:
            axis.set_ylim(bottom=0)
        grid[1][column].set_xscale("log", base=2)
        grid[1][column].set_xticks(comparison.qps, [str(number) for number in comparison.qps])
        grid[1][column].set_xticks([], minor=True)
        grid[1][column].set_xlabel("queue pairs per pair of NICs")
    name_axis(grid[0][0].yaxis, "busbw", Unit.GB_PER_S, "modelled")
    name_axis(grid[1][0].yaxis, "JCT ratio")
    handles, labels = grid[0][0].get_legend_handles_labels()
    add_key(figure, handles, labels)
    return figure


def _line(axis: Axes, comparison: Comparison, kind: str, placement: str, name: str) -> None:
    colour, marker, line, _ = _LOOKS.get(kind, _OTHER)
    cells = [
        cell
        for cell in comparison.cells
        if (cell.kind, cell.placement) == (kind, placement) and cell.figures is not None
    ]
    cells.sort(key=lambda cell: cell.qps)
    spreads = [getattr(cell.figures, name) for cell in cells]
    middle = np.array([spread.median for spread in spreads])
    low = middle - np.array([spread.minimum for spread in spreads])
    high = np.array([spread.maximum for spread in spreads]) - middle
    number = [cell.qps for cell in cells]
    axis.errorbar(
        number,
        middle,
        yerr=[low, high],
        color=colour,
        marker=marker,
        linestyle=line,
        linewidth=1.3,
        markersize=5,
        capsize=2,
        label=short_name(kind),
    )
    bad = [place for place, cell in enumerate(cells) if cell.status is not Status.MEASURED]
    axis.plot(
        [number[place] for place in bad],
        middle[bad],
        linestyle="none",
        marker="o",
        markersize=12,
        markerfacecolor="none",
        markeredgecolor=MUTED,
    )


@styled
def fairness_bars(comparison: Comparison) -> Figure | None:
    """JFI of the worst tier by scheme, a group of bars per number of queue pairs."""
    if not any(cell.figures for cell in comparison.cells):
        return None
    figure, (axes,) = panels(1, len(comparison.placements), 2.9, sharey=True)
    width = 0.8 / len(comparison.kinds)
    for axis, placement in zip(axes, comparison.placements, strict=True):
        for place, kind in enumerate(comparison.kinds):
            values = [
                _jfi(cells_of(comparison, placement, number), kind) for number in comparison.qps
            ]
            colour, _, _, hatch = _LOOKS.get(kind, _OTHER)
            axis.bar(
                np.arange(len(values)) + place * width,
                values,
                width=0.92 * width,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
                label=short_name(kind),
            )
        axis.set_xticks(
            np.arange(len(comparison.qps)) + 0.4 - width / 2, [str(n) for n in comparison.qps]
        )
        axis.tick_params(axis="x", length=0)
        axis.set_xlabel("queue pairs per pair of NICs")
        axis.set_ylim(0, 1)
        axis.set_title(f"{placement} placement")
        axis.grid(axis="y", color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)
    name_axis(axes[0].yaxis, "Jain's index")
    handles, labels = axes[0].get_legend_handles_labels()
    add_key(figure, handles, labels)
    return figure


def _jfi(cells: list[CellResult], kind: str) -> float:
    for cell in cells:
        if cell.kind == kind and cell.figures is not None:
            worst = worst_tier(cell.figures)
            return 0.0 if worst is None or worst.jfi is None else worst.jfi
    return 0.0


@styled
def load_map(comparison: Comparison, placement: str) -> Figure | None:
    """Every link's load over its tier's mean: a row per scheme and number of queue pairs, a panel
    per tier and direction. If links do not all fit, sorted neighbours are joined."""
    tiers = [(key, link_matrix(comparison, placement, *key)) for key in tiers_of(comparison)]
    tiers = [(key, matrix) for key, matrix in tiers if matrix[0]]
    if not tiers:
        return None
    rows = len(tiers[0][1][0])
    columns = min(fitting(2), len(tiers))
    lines = -(-len(tiers) // columns)
    figure = figure_of(11, 0.4 + (1 + 0.2 * rows) * lines)
    grid = figure.subplots(lines, columns, squeeze=False)
    most = max(max(map(max, values)) for _, (_, _, values) in tiers)
    image = None
    for axis in grid.flat[len(tiers) :]:
        axis.set_visible(False)
    for axis, ((tier, direction), (names, links, values)) in zip(grid.flat, tiers, strict=False):
        matrix = np.array(values)
        if matrix.shape[1] > MOST_COLUMNS:
            matrix = -np.sort(-matrix, axis=1)
        image = axis.pcolormesh(
            matrix, cmap="cividis", vmin=0, vmax=max(2.0, most), edgecolors="white", linewidth=0.3
        )
        axis.invert_yaxis()
        axis.set_yticks(np.arange(len(names)) + 0.5, names)
        if matrix.shape[1] > MOST_COLUMNS:
            axis.set_xticks([])
            axis.set_xlabel(f"{len(links):,} links, busiest first")
        else:
            axis.set_xticks(np.arange(len(links)) + 0.5, links, rotation=90)
        axis.tick_params(length=0)
        axis.set_title(f"{tier} {direction.value}")
        for row, column in np.argwhere(matrix == 0):
            axis.text(column + 0.5, row + 0.5, "0", ha="center", va="center", color="w")
    if image is not None:
        bar = figure.colorbar(image, ax=list(grid.flat), fraction=0.025)
        name_axis(bar.ax.yaxis, "load over the mean")
        bar.outline.set_visible(False)
        if bar.solids is not None:
            bar.solids.set_rasterized(False)
    return figure
