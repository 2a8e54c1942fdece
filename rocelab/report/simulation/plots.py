"""The plots of a simulation: loads of links by tier, when flows end, rates over time, jobs.

Figures are in the style of `rocelab.report.plots`, and None if there is nothing to draw.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from rocelab.base.quantities import Unit, axis_unit, duration
from rocelab.base.wording import counted
from rocelab.report.flowplots import ALIKE, slowdown_plot, timeline_plot
from rocelab.report.palette import EVENT, EXTREMES, GRID, MEASURED, MUTED
from rocelab.report.plots import (
    figure_of,
    fitting,
    name_axis,
    number_event,
    styled,
    title_of,
)
from rocelab.results.simulation import SimulationReport, TierUse

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_ROWS = 160
MOST_COLUMNS = 256
MOST_NAMES = 32
"""Links of a switch that are named in a map."""

FEW_NAMES = 6
"""So many stand side by side without being turned."""

AROUND = 0.04
"""How much is drawn on both sides of a silence that is left out, of the rest."""

LEAST_WIDTH = 0.15
"""The least width of a part of a plot, of the widest."""

_ZONE = re.compile("^z[0-9]+-")


@styled
def heat(report: SimulationReport) -> Figure | None:
    """The load of every link between switches over the mean of its tier and direction: a panel for
    each, a row per lower switch, a column per link of it. If rows do not all fit, neighbours are
    joined and the busiest is shown."""
    uses = [use for use in report.uses if use.balance.total]
    if not uses:
        return None
    columns = min(fitting(2), len(uses))
    rows = -(-len(uses) // columns)
    figure = figure_of(11, 0.8 + 2.4 * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axis in grid.flat[len(uses) :]:
        axis.set_visible(False)
    for axis, use in zip(grid.flat, uses, strict=False):
        values = _relative_to_mean(use)
        most = max(2.0, float(np.nanmax(values)))
        image = axis.imshow(
            values, cmap="cividis", vmin=0, vmax=most, aspect="auto", interpolation="nearest"
        )
        bar = figure.colorbar(image, ax=axis, fraction=0.04)
        name_axis(bar.ax.yaxis, "over the mean")
        bar.outline.set_visible(False)
        axis.set_title(f"{use.tier} {use.direction.value}: MMR {use.balance.mmr:.2f}")
        _name_rows(axis, use, len(values))
        _name_columns(axis, use, _far_ends(report, use), values.shape[1])
    return figure


def _relative_to_mean(use: TierUse) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    sizes = np.array(use.bytes, np.float64)
    loads = np.full((len(use.nodes), use.width), np.nan)
    widths = np.array(use.widths or [use.width] * len(use.nodes))
    loads[np.arange(use.width) < widths[:, None]] = sizes / sizes.mean()
    return _joined(_joined(loads, MOST_ROWS).T, MOST_COLUMNS).T


def _joined(
    rows: np.ndarray[tuple[int, int], np.dtype[np.float64]], most: int
) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    if len(rows) <= most:
        return rows
    starts = np.linspace(0, len(rows), most, endpoint=False).astype(int)
    joined: np.ndarray[tuple[int, int], np.dtype[np.float64]] = np.fmax.reduceat(rows, starts)
    return joined


def _name_rows(axis: Axes, use: TierUse, rows: int) -> None:
    """Label the first and the last switch, or all if there is room."""
    axis.tick_params(length=0)
    if len(use.nodes) <= 16:
        axis.set_yticks(range(rows), use.nodes)
    else:
        axis.set_yticks([0, rows - 1], [use.nodes[0], use.nodes[-1]])


def _far_ends(report: SimulationReport, use: TierUse) -> list[list[str]]:
    """Of each switch of the tier the upper ends of its links, without their zones; empty if the lab
    cannot be planned any more."""
    try:
        fabric = report.fabric
    except ValueError:
        return []
    ends = [
        _ZONE.sub("", link.name.partition(":")[2]) for link in fabric.links if link.tier == use.tier
    ]
    widths = use.widths or (use.width,) * len(use.nodes)
    if sum(widths) != len(ends):
        return []
    begins = itertools.accumulate(widths, initial=0)
    return [ends[at : at + width] for at, width in zip(begins, widths, strict=False)]


def _name_columns(axis: Axes, use: TierUse, ends: Sequence[Sequence[str]], columns: int) -> None:
    """The names of a switch's links by their upper ends, as many as have room."""
    alike = all(of_switch == ends[0] for of_switch in ends)
    of = "" if alike else f" of {use.nodes[0]}, of others in the same order"
    axis.set_xlabel(f"{counted(use.width, 'link')} of a switch, by the upper end{of}")
    every = max(1, -(-use.width // MOST_NAMES))
    places = range(0, len(ends[0]) if ends else 0, every)
    axis.set_xticks(
        [place * columns / use.width for place in places],
        [ends[0][place] for place in places],
        rotation=90 if use.width > FEW_NAMES else 0,
    )


@styled
def finishing(report: SimulationReport) -> Figure | None:
    """The share of transfers that were over by each time; None if all were over at one time."""
    if len(report.finish_ns) < 2 or report.finish_ns[0] >= ALIKE * report.finish_ns[-1]:
        return None
    figure = figure_of(11, 2.8)
    axis = figure.subplots()
    scale, unit = axis_unit(report.finish_ns[-1], Unit.NS)
    times = np.array(report.finish_ns) / scale
    shares = np.linspace(0, 1, len(times))
    axis.step(times, shares, where="post", color=MEASURED, linewidth=1.4)
    for job in report.jobs:
        ideal = job.roofline_ns * len(job.iterations_ns) / scale
        axis.axvline(ideal, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    axis.set_xlim(left=0)
    axis.set_ylim(0, 1.02)
    name_axis(axis.xaxis, "time (dotted: the lower bound of a job)", unit)
    name_axis(axis.yaxis, "share of transfers over")
    axis.grid(color=GRID, linewidth=0.6)
    return figure


def constant_bps(report: SimulationReport) -> float | None:
    """The sum of all rates, if it did not change while something was sent and nothing failed."""
    rates_bps = report.rate.rate_bps[:-1]
    if report.events or not rates_bps or min(rates_bps) < ALIKE * max(rates_bps):
        return None
    return max(rates_bps)


@styled
def rates(report: SimulationReport) -> Figure | None:
    """The sum of all rates over time, with failures and repairs; None for a constant rate."""
    if constant_bps(report) is not None or len(report.rate.time_ns) < 2:
        return None
    parts_ns = _busy_parts(report)
    figure = figure_of(11, 2.8)
    time_scale, time_unit = axis_unit(parts_ns[-1][1], Unit.NS)
    times = np.array(report.rate.time_ns) / time_scale
    rates_bps = np.array(report.rate.rate_bps)
    scale, unit = axis_unit(float(rates_bps.max()), Unit.BITS_PER_S)
    widths = [end - begin for begin, end in parts_ns]
    widths = [max(width, LEAST_WIDTH * max(widths)) for width in widths]
    axes = figure.subplots(
        1, len(parts_ns), sharey=True, squeeze=False, gridspec_kw={"width_ratios": widths}
    )[0]
    for axis, (begin_ns, end_ns), width in zip(axes, parts_ns, widths, strict=True):
        axis.step(times, rates_bps / scale, where="post", color=MEASURED)
        axis.fill_between(times, rates_bps / scale, step="post", color=EXTREMES, linewidth=0)
        for number, event in enumerate(report.events, 1):
            if begin_ns <= event.start_ns <= end_ns:
                number_event(axis, number, event.start_ns / time_scale)
            for at in (event.start_ns, event.end_ns):
                if at is not None and begin_ns <= at <= end_ns:
                    axis.axvline(at / time_scale, color=EVENT, linewidth=0.9, linestyle=(0, (2, 2)))
        axis.set_xlim(begin_ns / time_scale, end_ns / time_scale)
        axis.locator_params(axis="x", nbins=max(1, int(fitting(9) * width / sum(widths))))
        axis.set_ylim(bottom=0)
        name_axis(axis.xaxis, "time", time_unit)
        axis.grid(color=GRID, linewidth=0.6)
    name_axis(axes[0].yaxis, "all, on the wire", unit)
    silence = long_silence_ns(report)
    if silence is not None:
        silent = duration(silence[1] - silence[0])
        axes[1].set_title(title_of(f"before this nothing was sent for {silent}"))
    return figure


def long_silence_ns(report: SimulationReport) -> tuple[float, float] | None:
    """From and until when nothing was sent, if that is longer than all the rest, between two times
    in which something was; None if there is no such time."""
    sending = _sending_ns(report)
    gaps = [(ended, began) for (_, ended), (began, _) in pairwise(sending)]
    if not gaps:
        return None
    begin, end = max(gaps, key=lambda gap: gap[1] - gap[0])
    return (begin, end) if end - begin > sending[-1][1] / 2 else None


def _sending_ns(report: SimulationReport) -> list[tuple[float, float]]:
    """From and until when something was sent, each time without a break."""
    spans: list[tuple[float, float]] = []
    for rate_bps, (begin, end) in zip(
        report.rate.rate_bps, pairwise(report.rate.time_ns), strict=False
    ):
        if rate_bps and spans and spans[-1][1] == begin:
            spans[-1] = (spans[-1][0], end)
        elif rate_bps:
            spans.append((begin, end))
    return spans


def _busy_parts(report: SimulationReport) -> list[tuple[float, float]]:
    """What of the time is drawn, from and until when in ns: until the last byte, without a long
    silence."""
    sending = _sending_ns(report)
    last_ns = sending[-1][1] if sending else report.rate.time_ns[-1]
    silence = long_silence_ns(report)
    if silence is None:
        return [(0.0, last_ns)]
    begin, end = silence
    around = AROUND * (last_ns - (end - begin))
    return [(0.0, begin + around), (end - around, last_ns + around)]


@styled
def jobs(report: SimulationReport) -> Figure | None:
    """JCT ratios: the distribution over jobs and their iterations. None for a single ratio."""
    ratios = sorted(
        time / job.roofline_ns
        for job in report.jobs
        for time in job.iterations_ns
        if time is not None and job.roofline_ns
    )
    if len(ratios) < 2:
        return None
    figure = figure_of(11, 2.8)
    axis = figure.subplots()
    axis.plot(ratios, np.linspace(0, 1, len(ratios)), color=MEASURED, marker="o", markersize=3)
    axis.set_xlim(left=min(1.0, ratios[0]))
    axis.set_ylim(0, 1.02)
    name_axis(axis.xaxis, "JCT ratio: time over its lower bound")
    name_axis(axis.yaxis, "share of iterations")
    axis.grid(color=GRID, linewidth=0.6)
    return figure


def slowdown(report: SimulationReport) -> Figure | None:
    """Of the flows of each job: the distribution of their slowdown, and where sizes differ its
    quantiles by size. None without flows that have times of their own, and if all are alike."""
    return slowdown_plot(
        [(job.name, job.slowdown) for job in report.jobs if job.slowdown is not None]
    )


def timeline(report: SimulationReport) -> Figure | None:
    """When the steps of each job's last iteration sent, a row per step. None if there are only
    steps of a collective's schedule, or too many of them."""
    return timeline_plot(
        [
            (f"{job.name}: {step.name}" if len(report.jobs) > 1 else step.name, step)
            for job in report.jobs
            for step in job.steps
            if step.start_ns is not None and step.end_ns is not None
        ]
    )
