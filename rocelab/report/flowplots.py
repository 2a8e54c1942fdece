"""Plots of when flows and steps were over, of simulations and of a lab's jobs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rocelab.base.quantities import Unit, axis_unit, size, tick
from rocelab.report.palette import CATEGORIES, GRID, MEASURED
from rocelab.report.plots import figure_of, name_axis, panels, styled
from rocelab.results.flowtimes import SlowdownBySize, StepTimes

if TYPE_CHECKING:
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

MOST_ROWS = 160

ALIKE = 0.99
"""Times of which the least is so much of the greatest are one line in a distribution."""


@styled
def slowdown_plot(slowdowns: Sequence[tuple[str, SlowdownBySize]]) -> Figure | None:
    """The same of jobs by their names."""
    if all(curve.quantiles[0] >= ALIKE * curve.quantiles[-1] for _, curve in slowdowns):
        return None
    sized = [(name, curve) for name, curve in slowdowns if len(curve.bins) > 1]
    figure, (axes,) = panels(1, 1 + bool(sized), 2.8)
    several = len(slowdowns) > 1
    colours = itertools.cycle(CATEGORIES)
    for name, curve in slowdowns:
        shares = np.linspace(0, 1, len(curve.quantiles))
        axes[0].plot(curve.quantiles, shares, color=next(colours), linewidth=1.4, label=name)
    for name, curve in sized:
        sizes = [part.largest_bytes for part in curve.bins]
        for quantile in ("p50", "p95", "p99"):
            values = [getattr(part, quantile) for part in curve.bins]
            label = f"{name} {quantile}" if several else quantile
            colour = next(colours)
            axes[1].plot(
                sizes, values, color=colour, linewidth=1.4, marker="o", markersize=3, label=label
            )
    axes[0].set_xlabel("slowdown: time over the least one, alone on the path")
    name_axis(axes[0].yaxis, "share of flows")
    axes[0].set_ylim(0, 1.02)
    if several:
        axes[0].legend(frameon=False)
    ratios: list[XAxis | YAxis] = [axes[0].xaxis]
    sizes_of = []
    for by_size in axes[1:]:
        by_size.set_xlabel("size of a flow, up to")
        by_size.set_ylabel("slowdown")
        by_size.set_yscale("log")
        by_size.legend(frameon=False)
        ratios.append(by_size.yaxis)
        sizes_of.append(by_size.xaxis)
    for each_axes in axes:
        each_axes.set_xscale("log")
        each_axes.grid(color=GRID, linewidth=0.6)
    for axis in ratios:
        axis.set_major_formatter(lambda value, _: tick(value))
        axis.set_minor_formatter(lambda value, _: tick(value))
    for axis in sizes_of:
        axis.set_major_formatter(lambda value, _: size(value))
        axis.set_minor_formatter(lambda _value, _: "")
    return figure


@styled
def timeline_plot(rows: Sequence[tuple[str, StepTimes]]) -> Figure | None:
    """When steps by their names sent. None for too few or too many of them."""
    if not 2 <= len(rows) <= MOST_ROWS:
        return None
    figure = figure_of(11, 0.9 + 0.16 * len(rows))
    axis = figure.subplots()
    first = min(step.start_ns or 0.0 for _, step in rows)
    last = max(step.end_ns or 0.0 for _, step in rows)
    # A step shorter than a pixel is drawn as one.
    least = (last - first) / 800
    scale, unit = axis_unit(last, Unit.NS)
    for row, (_, step) in enumerate(rows):
        assert step.start_ns is not None
        assert step.end_ns is not None
        length = max(step.end_ns - step.start_ns, least)
        axis.barh(row, length / scale, left=step.start_ns / scale, color=MEASURED, height=0.7)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows])
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    name_axis(axis.xaxis, "time", unit)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    return figure
