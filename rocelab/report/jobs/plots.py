"""The plots of a phase of jobs: goodput and iterations over time, DCQCN in the lab over its model,
link loads.

Figures are in the style of `rocelab.report.plots`. Times and rates are those of the modelled
network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rocelab.base.quantities import BPS_PER_GBS, Unit, axis_unit
from rocelab.planning.fabric import Direction
from rocelab.report.palette import (
    CATEGORIES,
    EVENT,
    EXTREMES,
    GRID,
    INK,
    MEASURED,
    MODEL,
    MUTED,
    PAUSED,
)
from rocelab.report.plots import figure_of, head, name_axis, number_event, panels, styled
from rocelab.results.job import JobReport
from rocelab.results.shares import FairShares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINKS = 72
MAX_PAUSED = 40
"""Ports in the plot of pauses: those that waited most."""

POINTS, QUEUE_POINTS = 160, 600
"""About the most points of a lab's series: more would hide the model's lines."""

LEAST_STEPS = 10


@styled
def fair_shares_plot(fair: FairShares, report: JobReport) -> Figure:
    """Rates of every sender and the queue of the port that they share: points from the lab, lines
    from the model."""
    figure = figure_of(11, 5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    last_ns = max(fair.lab.times_ns[-1], fair.model.times_ns[-1])
    scale, unit = axis_unit(last_ns, Unit.NS)
    _rates(upper, fair, scale)
    _queue(lower, fair, scale)
    port = report.fabric.port_name(fair.port.node, fair.port.interface)
    head(lower, f"queue of {port}")
    for axis in (upper, lower):
        axis.grid(axis="y", color=GRID, linewidth=0.6)
        axis.set_ylim(bottom=0)
        for start in sorted(set(fair.starts_ns)):
            axis.axvline(start / scale, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    last = max(fair.starts_ns)
    for time, label, colour in (
        (fair.lab_ns, "lab: fair", MEASURED),
        (fair.model_times_ns[0], "model: fair", MODEL),
    ):
        if time is not None:
            at = (last + time) / scale
            upper.axvline(at, color=colour, linewidth=0.9)
            upper.annotate(
                label,
                (at, 0.05),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                textcoords="offset points",
                color=colour,
            )
    name_axis(lower.xaxis, "time", unit, "modelled")
    return figure


def _rates(axis: Axes, fair: FairShares, scale: float) -> None:
    lab_times = np.array(fair.lab.times_ns) / scale
    model_times = np.array(fair.model.times_ns) / scale
    every = max(1, len(lab_times) // POINTS)
    for index, (lab, model) in enumerate(
        zip(fair.lab.rates_bps, fair.model.rates_bps, strict=True)
    ):
        colour = CATEGORIES[index % len(CATEGORIES)]
        axis.plot(
            lab_times[::every],
            np.array(lab)[::every] / BPS_PER_GBS,
            ".",
            color=colour,
            markersize=4,
            label=f"sender {index + 1}, lab",
        )
        axis.plot(
            model_times, np.array(model) / BPS_PER_GBS, color=colour, linewidth=1.1, alpha=0.75
        )
    axis.plot([], [], color=MUTED, linewidth=1.1, label="model (first seed)")
    name_axis(axis.yaxis, "goodput", Unit.GB_PER_S, "modelled")
    head(axis, "goodput of each sender")


def _queue(axis: Axes, fair: FairShares, scale: float) -> None:
    deepest = max((fair.port.kmax_bytes, *fair.model.queue_bytes, *fair.lab.queue_bytes))
    size_scale, unit = axis_unit(deepest, Unit.BYTES)
    axis.plot(
        np.array(fair.model.queue_times_ns) / scale,
        np.array(fair.model.queue_bytes) / size_scale,
        color=MODEL,
        linewidth=1.0,
        label="model (first seed)",
    )
    every = max(1, len(fair.lab.queue_bytes) // QUEUE_POINTS)
    axis.plot(
        np.array(fair.lab.queue_times_ns)[::every] / scale,
        np.array(fair.lab.queue_bytes)[::every] / size_scale,
        ".",
        color=MEASURED,
        markersize=2.5,
        label="lab",
    )
    for level, name in ((fair.port.kmin_bytes, "kmin"), (fair.port.kmax_bytes, "kmax")):
        axis.axhline(level / size_scale, color=MUTED, linewidth=0.7, linestyle=(0, (4, 3)))
        axis.annotate(name, (1.002, level / size_scale), xycoords=("axes fraction", "data"))
    name_axis(axis.yaxis, "queue", unit)


@styled
def progress_plot(report: JobReport) -> Figure | None:
    """Goodput of the senders over time, and the time of each iteration below it, with the faults;
    None if the job was too short for either."""
    steps = max((len(sender.rate_bps) for sender in report.goodput.senders), default=0)
    panels = [_goodput] if steps >= LEAST_STEPS else []
    if report.iteration_spans_ns:
        panels.append(_iterations)
    if not panels:
        return None
    figure = figure_of(11, 0.5 + 1.9 * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    scale, unit = axis_unit(_last_ns(report), Unit.NS)
    for axis, draw in zip(axes, panels, strict=True):
        draw(axis, report, scale)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color=GRID, linewidth=0.6)
        for number, event in enumerate(report.events, 1):
            at = event.t_ns / report.clock.dilation / scale
            axis.axvline(at, color=EVENT, linewidth=0.9, linestyle=(0, (2, 2)))
            if axis is axes[0]:
                number_event(axis, number, at)
    name_axis(axes[-1].xaxis, "time", unit, "modelled")
    return figure


def _last_ns(report: JobReport) -> float:
    """The end of the progress, in the modelled network's clock."""
    steps = max((len(sender.rate_bps) for sender in report.goodput.senders), default=0)
    ends = [ended / report.clock.dilation for _, ended in report.iteration_spans_ns]
    return max([*ends, steps * report.goodput.step.modelled_ns])


def _goodput(axis: Axes, report: JobReport, scale: float) -> None:
    step = report.goodput.step.modelled_ns / scale
    longest = max(len(sender.rate_bps) for sender in report.goodput.senders)
    rates = np.full((len(report.goodput.senders), longest), np.nan)
    for row, sender in enumerate(report.goodput.senders):
        rates[row, : len(sender.rate_bps)] = np.array(sender.rate_bps) / BPS_PER_GBS
    edges = np.arange(longest) * step
    low, middle, high = np.nanmin(rates, 0), np.nanmedian(rates, 0), np.nanmax(rates, 0)
    axis.fill_between(
        edges, low, high, step="post", color=EXTREMES, linewidth=0, label="slowest to fastest"
    )
    axis.step(edges, middle, where="post", color=MEASURED, linewidth=1.1, label="median")
    name_axis(axis.yaxis, "goodput", Unit.GB_PER_S, "modelled")
    head(axis, "goodput of a sender")


def _iterations(axis: Axes, report: JobReport, scale: float) -> None:
    dilation = report.clock.dilation
    spans = [(began / dilation, ended / dilation) for began, ended in report.iteration_spans_ns]
    took_scale, unit = axis_unit(max(ended - began for began, ended in spans), Unit.NS)
    axis.hlines(
        [(ended - began) / took_scale for began, ended in spans],
        [began / scale for began, _ in spans],
        [ended / scale for _, ended in spans],
        color=MEASURED,
        linewidth=2,
    )
    name_axis(axis.yaxis, "took", unit, "modelled")
    axis.set_title("time of each iteration", pad=14)


@styled
def link_loads_plot(report: JobReport) -> Figure | None:
    """A bar per link between switches in each direction, None if none carried the job."""
    loads = [link for link in report.links if not link.tier.startswith("server")]
    if not any(link.packets for link in loads) or len(loads) > 2 * MAX_LINKS:
        return None
    figure, (axes,) = panels(1, 2, 2.6, sharey=True)
    for axis, direction in zip(axes, (Direction.UP, Direction.DOWN), strict=True):
        links = [link for link in loads if link.direction is direction]
        packets = np.array([link.packets for link in links])
        axis.bar(range(len(links)), packets, color=MEASURED, width=0.85)
        axis.axhline(float(packets.mean()), color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.set_xticks(range(len(links)), [link.link for link in links], rotation=90)
        axis.tick_params(axis="x", length=0, pad=1)
        axis.set_title(f"{direction.value}: packets per link")
        name_axis(axis.yaxis, "packets" if direction is Direction.UP else "")
        axis.grid(axis="y", color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)
    return figure


@styled
def pauses_plot(report: JobReport) -> Figure | None:
    """When each port stopped, and who had asked it to; None where no port did."""
    if report.lossless is None or not report.lossless.spans:
        return None
    end_ns = report.fidelity.elapsed_ns
    bars: dict[str, list[tuple[float, float]]] = {}
    for span in report.lossless.spans:
        name = f"{report.fabric.port_name(span.node, span.interface)}  by {span.peer}"
        bars.setdefault(name, []).append((span.begin_ns, span.length_ns(end_ns)))
    rows = sorted(bars, key=lambda name: -sum(length for _, length in bars[name]))[:MAX_PAUSED]
    dilation = report.clock.dilation
    scale, unit = axis_unit(end_ns / dilation, Unit.NS)
    figure = figure_of(11, 1.2 + 0.2 * len(rows))
    axis = figure.subplots()
    for place, name in enumerate(rows):
        spans = [
            (begin / dilation / scale, length / dilation / scale) for begin, length in bars[name]
        ]
        axis.broken_barh(spans, (place - 0.4, 0.8), color=PAUSED)
    axis.set_yticks(range(len(rows)), rows)
    axis.invert_yaxis()
    name_axis(axis.xaxis, "time", unit, "modelled")
    part = report.lossless.part
    axis.set_title(f"when ports stopped, and who paused them{part and f': {part}'}")
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    return figure
