"""The plots of a phase of jobs: goodput and iterations over time, DCQCN in the lab over its model,
link loads.

Figures are in the style of `rocelab.report.plots`. Times and rates are those of the modelled
network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from rocelab.planning.fabric import Direction
from rocelab.report.plots import GRID, INK, MUTED, figure_of, number_event, styled
from rocelab.results.job import JobReport
from rocelab.results.shares import FairShares

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MS = 10**6
GBPS = 10**9
MAX_LINKS = 72
MAX_PAUSED = 40
"""Ports in the plot of pauses: those that waited most."""

SENDERS = ("#1f6fb2", "#d9822b", "#4c9a6a", "#8a5fb0", "#c8102e", "#7a5c3e", "#2aa5a0", "#9aa5b1")
BAND = "#b9d3e6"
QUEUE_LAB, QUEUE_MODEL = "#1f6fb2", "#1c2530"
POINTS, QUEUE_POINTS = 160, 600
"""About the most points of a lab's series: more would hide the model's lines."""

LEAST_STEPS = 10


@styled
def fair_shares_plot(fair: FairShares) -> Figure:
    """Rates of every sender and their shared queue: points from the lab, lines from the model."""
    figure = figure_of(11, 5.6)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _rates(upper, fair)
    _queue(lower, fair)
    for axis in (upper, lower):
        axis.grid(axis="y", color=GRID, linewidth=0.6)
        axis.set_ylim(bottom=0)
        for start in sorted(set(fair.starts_ns)):
            axis.axvline(start / MS, color=MUTED, linewidth=0.8, linestyle=(0, (2, 2)))
    last = max(fair.starts_ns)
    for time, label, colour in (
        (fair.lab_ns, "lab: fair", SENDERS[0]),
        (fair.model_times_ns[0], "model: fair", INK),
    ):
        if time is not None:
            at = (last + time) / MS
            upper.axvline(at, color=colour, linewidth=0.9)
            upper.annotate(
                label,
                (at, 0.05),
                xycoords=("data", "axes fraction"),
                xytext=(3, 0),
                textcoords="offset points",
                color=colour,
            )
    lower.set_xlabel("ms of the modelled network")
    return figure


def _rates(axis: Axes, fair: FairShares) -> None:
    lab_ms = np.array(fair.lab.times_ns) / MS
    model_ms = np.array(fair.model.times_ns) / MS
    every = max(1, len(lab_ms) // POINTS)
    for index, (lab, model) in enumerate(
        zip(fair.lab.rates_bps, fair.model.rates_bps, strict=True)
    ):
        colour = SENDERS[index % len(SENDERS)]
        axis.plot(
            lab_ms[::every],
            np.array(lab)[::every] / GBPS,
            ".",
            color=colour,
            markersize=4,
            label=f"sender {index + 1}, lab",
        )
        axis.plot(model_ms, np.array(model) / GBPS, color=colour, linewidth=1.1, alpha=0.75)
    axis.plot([], [], color=MUTED, linewidth=1.1, label="model (first seed)")
    axis.set_ylabel("payload, Gb/s, modelled")
    axis.set_title("rate of each sender")
    axis.legend(frameon=False, ncols=5, loc="lower right", bbox_to_anchor=(1, 1))


def _queue(axis: Axes, fair: FairShares) -> None:
    axis.plot(
        np.array(fair.model.queue_times_ns) / MS,
        np.array(fair.model.queue_bytes) / 1000,
        color=QUEUE_MODEL,
        linewidth=1.0,
        label="model (first seed)",
    )
    every = max(1, len(fair.lab.queue_bytes) // QUEUE_POINTS)
    axis.plot(
        np.array(fair.lab.queue_times_ns)[::every] / MS,
        np.array(fair.lab.queue_bytes)[::every] / 1000,
        ".",
        color=QUEUE_LAB,
        markersize=2.5,
        label="lab",
    )
    for level, name in ((fair.port.kmin_bytes, "kmin"), (fair.port.kmax_bytes, "kmax")):
        axis.axhline(level / 1000, color=MUTED, linewidth=0.7, linestyle=(0, (4, 3)))
        axis.annotate(name, (1.002, level / 1000), xycoords=("axes fraction", "data"))
    axis.set_ylabel("queue, kB")
    axis.set_title(f"queue of {fair.port.node}:{fair.port.interface}")
    axis.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))


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
    for axis, draw in zip(axes, panels, strict=True):
        draw(axis, report)
    for axis in axes:
        axis.set_ylim(bottom=0)
        axis.grid(axis="y", color=GRID, linewidth=0.6)
        for number, event in enumerate(report.events, 1):
            at = event.t_ns / report.clock.dilation / MS
            axis.axvline(at, color=INK, linewidth=0.9, linestyle=(0, (2, 2)))
            if axis is axes[0]:
                number_event(axis, number, at)
    axes[-1].set_xlabel("ms of the modelled network")
    return figure


def _goodput(axis: Axes, report: JobReport) -> None:
    step_ms = report.goodput.step.modelled_ns / MS
    longest = max(len(sender.rate_bps) for sender in report.goodput.senders)
    rates = np.full((len(report.goodput.senders), longest), np.nan)
    for row, sender in enumerate(report.goodput.senders):
        rates[row, : len(sender.rate_bps)] = np.array(sender.rate_bps) / GBPS
    edges_ms = np.arange(longest) * step_ms
    low, middle, high = np.nanmin(rates, 0), np.nanmedian(rates, 0), np.nanmax(rates, 0)
    axis.fill_between(
        edges_ms, low, high, step="post", color=BAND, linewidth=0, label="slowest to fastest"
    )
    axis.step(edges_ms, middle, where="post", color=SENDERS[0], linewidth=1.1, label="median")
    axis.set_ylabel("payload, Gb/s, modelled")
    axis.set_title("payload acknowledged, of a sender", pad=14)
    axis.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1.02))


def _iterations(axis: Axes, report: JobReport) -> None:
    scale = report.clock.dilation * MS
    spans = report.iteration_spans_ns
    axis.hlines(
        [(ended - began) / scale for began, ended in spans],
        [began / scale for began, _ in spans],
        [ended / scale for _, ended in spans],
        color=SENDERS[0],
        linewidth=2,
    )
    axis.set_ylabel("ms, modelled")
    axis.set_title("time of each iteration", pad=14)


@styled
def link_loads_plot(report: JobReport) -> Figure | None:
    """A bar per link between switches in each direction, None if none carried the job."""
    loads = [link for link in report.links if not link.tier.startswith("server")]
    if not any(link.packets for link in loads) or len(loads) > 2 * MAX_LINKS:
        return None
    figure = figure_of(11, 2.6)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, direction in zip(axes, (Direction.UP, Direction.DOWN), strict=True):
        links = [link for link in loads if link.direction is direction]
        packets = np.array([link.packets for link in links])
        axis.bar(range(len(links)), packets, color=SENDERS[0], width=0.85)
        axis.axhline(float(packets.mean()), color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
        axis.set_xticks(range(len(links)), [link.link for link in links], rotation=90)
        axis.tick_params(axis="x", length=0, pad=1)
        axis.set_title(f"{direction.value}: packets per link")
        axis.grid(axis="y", color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)
    return figure


@styled
def pauses_plot(report: JobReport) -> Figure | None:
    """When each port stopped, and who had asked it to; None where no port did."""
    if report.lossless is None or not report.lossless.spans:
        return None
    waited: dict[str, float] = {}
    end_ns = report.fidelity.elapsed_ns
    for span in report.lossless.spans:
        length_ns = (end_ns if span.end_ns is None else span.end_ns) - span.begin_ns
        name = f"{span.node}:{span.interface}"
        waited[name] = waited.get(name, 0.0) + length_ns
    rows = sorted(waited, key=lambda name: -waited[name])[:MAX_PAUSED]
    askers = list(dict.fromkeys(span.peer for span in report.lossless.spans))
    scale = MS * report.clock.dilation
    figure = figure_of(11, 1.2 + 0.2 * len(rows))
    axis = figure.subplots()
    for asker in askers:
        colour = SENDERS[askers.index(asker) % len(SENDERS)]
        label = asker
        for place, name in enumerate(rows):
            bars = [
                (
                    span.begin_ns / scale,
                    ((end_ns if span.end_ns is None else span.end_ns) - span.begin_ns) / scale,
                )
                for span in report.lossless.spans
                if span.peer == asker and f"{span.node}:{span.interface}" == name
            ]
            if bars:
                axis.broken_barh(bars, (place - 0.4, 0.8), color=colour, label=label)
                label = "_nolegend_"
    axis.set_yticks(range(len(rows)), rows)
    axis.invert_yaxis()
    axis.set_xlabel("ms of the modelled network")
    part = report.lossless.part
    axis.set_title(f"ports that stopped, by who paused them{part and f': {part}'}")
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.legend(frameon=False, ncols=8, loc="upper left", bbox_to_anchor=(0, -0.18))
    return figure
