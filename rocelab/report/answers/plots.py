"""The plot of an answer: the worst event of a run of probes, flows above, switches below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocelab.report.answers.events import WorstEvent, worst_event
from rocelab.report.plots import DELIVERED, EVENT, GRID, LOST, MS, figure_of, styled
from rocelab.report.stages import draw_stages, legend_of_stages, longest_stages
from rocelab.results.probes import FlowRecord, ProbeRun
from rocelab.results.stages import SwitchStages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FLOWS = 12
MOST_SWITCHES = 10
LEAST_PART = 0.04
"""A window is at least so much longer than what is in it, on the right."""


@styled
def worst_event_plot(run: ProbeRun) -> Figure | None:
    """The flows that the worst event hit, longest outage first, over the switches that took part,
    on one axis of time; None if no flow was hit."""
    worst = worst_event(run)
    if worst is None:
        return None
    flows = _hit(run, worst)
    if not flows:
        return None
    switches = [] if worst.stages is None else longest_stages(worst.stages, MOST_SWITCHES)
    heights = [0.45 + 0.17 * len(flows), *([0.45 + 0.19 * len(switches)] if switches else [])]
    figure = figure_of(11, 0.75 + sum(heights))
    axes = figure.subplots(len(heights), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
    low, high = _window(run, worst, flows, switches)
    _strips(axes[0], flows, worst, low, high)
    handles, labels = axes[0].get_legend_handles_labels()
    if switches:
        draw_stages(axes[1], switches)
        axes[1].set_title("switches", pad=4)
        stages = legend_of_stages()
        handles, labels = handles + stages, labels + [str(mark.get_label()) for mark in stages]
    for axis in axes:
        axis.axvline(0, color=EVENT, linewidth=0.9, linestyle=(0, (2, 2)))
        axis.set_xlim(low, high)
        axis.grid(axis="x", color=GRID, linewidth=0.6)
        axis.set_axisbelow(True)
        axis.spines["left"].set_visible(False)
        axis.tick_params(axis="y", length=0)
    axes[-1].set_xlabel(f"ms after event {worst.number}, lab")
    figure.legend(handles, labels, frameon=False, ncols=8, loc="outside upper right")
    return figure


def _hit(run: ProbeRun, worst: WorstEvent) -> list[FlowRecord]:
    place = worst.number - 1
    hit = [flow for flow in run.flows if flow.measurement.events[place].affected]
    hit.sort(key=lambda flow: -(flow.measurement.events[place].convergence_ns or 0))
    return hit[:MOST_FLOWS]


def _spans(flow: FlowRecord, worst: WorstEvent, end_ns: int) -> list[tuple[float, float]]:
    """When each outage of the flow that the event caused began and how long it lasted, ms after
    the event."""
    zero_ns = worst.record.event.t_ns
    return [
        ((outage.start_ns - zero_ns) / MS, ((outage.end_ns or end_ns) - outage.start_ns) / MS)
        for outage in flow.measurement.outages
        if outage.event == worst.number - 1
    ]


def _end_ns(run: ProbeRun) -> int:
    rate = run.flows[0].rate
    return rate.start_ns + rate.interval_ns * len(rate.sent)


def _window(
    run: ProbeRun, worst: WorstEvent, flows: list[FlowRecord], switches: list[SwitchStages]
) -> tuple[float, float]:
    """From a little before the event until all is over, in ms after it."""
    ends = [begin + length for flow in flows for begin, length in _spans(flow, worst, _end_ns(run))]
    ends += [switch.kernel_ns / MS for switch in switches if switch.kernel_ns is not None]
    last = max([*ends, 1.0])
    return -2 * LEAST_PART * last, (1 + LEAST_PART) * last


def _strips(
    axis: Axes, flows: list[FlowRecord], worst: WorstEvent, low: float, high: float
) -> None:
    axis.hlines(range(len(flows)), low, high, colors=DELIVERED, linewidth=7)
    for row, flow in enumerate(flows):
        spans = _spans(flow, worst, round(worst.record.event.t_ns + high * MS))
        axis.broken_barh(spans, (row - 0.3, 0.6), color=LOST, zorder=3)
    for colour, label in ((DELIVERED, "delivered"), (LOST, "lost")):
        axis.plot([], [], color=colour, linewidth=7, label=label)
    names = [f"{flow.flow.name}  {flow.flow.source} → {flow.flow.destination}" for flow in flows]
    axis.set_yticks(range(len(flows)), names)
    axis.set_ylim(len(flows) - 0.4, -0.6)
    more = worst.record.convergence.affected_flows - len(flows)
    axis.set_title("flows out" + (f", and {more} more" if more > 0 else ""), pad=4)
