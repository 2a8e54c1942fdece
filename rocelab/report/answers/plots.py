"""The plot of an answer: the worst event of a run of probes, flows above, switches below; of a
storm of events what each did to each flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit, axis_unit, duration
from rocelab.base.wording import counted
from rocelab.report.answers.events import WorstEvent, is_storm, worst_event
from rocelab.report.order import event_name
from rocelab.report.palette import DELIVERED, EVENT, GRID, INK, LOST
from rocelab.report.plots import (
    MS,
    SMALL,
    add_key,
    figure_of,
    fitting,
    flow_label,
    name_axis,
    styled,
    title_of,
)
from rocelab.report.stages import draw_stages, legend_of_stages, longest_stages
from rocelab.results.probes import FlowRecord, ProbeRun
from rocelab.results.stages import SwitchStages

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FLOWS = 12
MOST_SWITCHES = 10
MOST_MAPPED = 24
"""Flows of the map of a storm: those that were out longest."""

MOST_TIMES = 14
"""So many events leave room for times in the cells of their map."""

MOST_NAMES = 30
"""So many names of events fit above their map."""

PALEST, DARKEST = 0.1, 0.6
"""The opacity of a cell of the map that lost least and most: its text can be read."""

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
    low_ns, high_ns = _window(run, worst, flows, switches)
    scale, unit = axis_unit(high_ns, Unit.NS)
    low, high = low_ns / scale, high_ns / scale
    _strips(axes[0], flows, worst, scale, (low, high))
    handles, labels = axes[0].get_legend_handles_labels()
    if switches:
        draw_stages(axes[1], switches, scale)
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
    name_axis(axes[-1].xaxis, f"after {event_name(worst.number)}", unit, "lab")
    add_key(figure, handles, labels)
    return figure


def probes_plot(run: ProbeRun) -> Figure | None:
    """The worst event, or the map of a storm."""
    return storm_map(run) if is_storm(run) else worst_event_plot(run)


@styled
def storm_map(run: ProbeRun) -> Figure | None:
    """A row for each flow, a column for each event: how long the event had the flow out, the longer
    the stronger the red; None if no flow was hit."""
    flows = [flow for flow in run.flows if _out_ns(flow)]
    worst = worst_event(run)
    if not flows or worst is None:
        return None
    flows = sorted(flows, key=lambda flow: -sum(_out_ns(flow).values()))
    shown_flows = flows[:MOST_MAPPED]
    most_ns = max(out_ns for flow in flows for out_ns in _out_ns(flow).values())
    figure = figure_of(11, 0.9 + 0.16 * len(shown_flows))
    axis = figure.subplots()
    for row, flow in enumerate(shown_flows):
        for place, out_ns in _out_ns(flow).items():
            opacity = PALEST + (DARKEST - PALEST) * out_ns / (most_ns or 1)
            axis.barh(row, 0.96, left=place - 0.48, height=0.9, color=LOST, alpha=opacity)
            if len(run.events) <= fitting(MOST_TIMES):
                text = duration(out_ns) if out_ns else "lost"
                axis.text(place, row, text, ha="center", va="center", color=INK, fontsize=SMALL)
    events = range(0, len(run.events), 1 + len(run.events) // fitting(MOST_NAMES))
    axis.set_xticks(events, [event_name(place + 1) for place in events])
    axis.xaxis.tick_top()
    for place, name in zip(events, axis.get_xticklabels(), strict=True):
        name.set_fontweight("bold" if place == worst.number - 1 else "normal")
    axis.set_xlim(-0.5, len(run.events) - 0.5)
    axis.set_yticks(range(len(shown_flows)), [flow_label(flow) for flow in shown_flows])
    axis.set_ylim(len(shown_flows) - 0.4, -0.6)
    axis.tick_params(length=0)
    for side in ("left", "bottom"):
        axis.spines[side].set_visible(False)
    axis.hlines(
        [row + 0.5 for row in range(len(shown_flows))],
        -0.5,
        len(run.events),
        colors=GRID,
        linewidth=0.6,
    )
    more = len(flows) - len(shown_flows)
    text = f"; {counted(more, 'flow')} more lost less" if more else ""
    name_text = f"outage of each flow by event, lab; a longer outage is a stronger red{text}"
    axis.set_title(title_of(name_text))
    return figure


def _out_ns(flow: FlowRecord) -> dict[int, int]:
    """How long each event had the flow out, by its place; 0 if it lost packets and that was not
    measured."""
    return {
        place: event.loss_of_connectivity_ns or 0
        for place, event in enumerate(flow.measurement.events)
        if event.affected
    }


def _hit(run: ProbeRun, worst: WorstEvent) -> list[FlowRecord]:
    place = worst.number - 1
    hit = [flow for flow in run.flows if flow.measurement.events[place].affected]
    hit.sort(key=lambda flow: -(flow.measurement.events[place].convergence_ns or 0))
    return hit[:MOST_FLOWS]


def _spans(flow: FlowRecord, worst: WorstEvent, end_ns: int) -> list[tuple[int, int]]:
    """When each outage of the flow that the event caused began after it, and how long it lasted,
    in ns."""
    zero_ns = worst.record.event.t_ns
    return [
        (outage.start_ns - zero_ns, (outage.end_ns or end_ns) - outage.start_ns)
        for outage in flow.measurement.outages
        if outage.event == worst.number - 1
    ]


def _end_ns(run: ProbeRun) -> int:
    rate = run.flows[0].rate
    return rate.start_ns + rate.interval_ns * len(rate.sent)


def _window(
    run: ProbeRun, worst: WorstEvent, flows: list[FlowRecord], switches: list[SwitchStages]
) -> tuple[float, float]:
    """From a little before the event until all is over, in ns after it."""
    ends = [begin + length for flow in flows for begin, length in _spans(flow, worst, _end_ns(run))]
    ends += [switch.kernel_ns for switch in switches if switch.kernel_ns is not None]
    last = max([*ends, MS])
    return -2 * LEAST_PART * last, (1 + LEAST_PART) * last


def _strips(
    axis: Axes,
    flows: list[FlowRecord],
    worst: WorstEvent,
    scale: float,
    window: tuple[float, float],
) -> None:
    """Strips in units of `scale` ns, in the window."""
    low, high = window
    axis.hlines(range(len(flows)), low, high, colors=DELIVERED, linewidth=7)
    for row, flow in enumerate(flows):
        spans = _spans(flow, worst, round(worst.record.event.t_ns + high * scale))
        axis.broken_barh(
            [(begin / scale, length / scale) for begin, length in spans],
            (row - 0.3, 0.6),
            color=LOST,
            zorder=3,
        )
    for colour, label in ((DELIVERED, "delivered"), (LOST, "lost")):
        axis.plot([], [], color=colour, linewidth=7, label=label)
    axis.set_yticks(range(len(flows)), [flow_label(flow) for flow in flows])
    axis.set_ylim(len(flows) - 0.4, -0.6)
    more = worst.record.convergence.affected_flows - len(flows)
    axis.set_title("flows out" + (f", and {more} more" if more > 0 else ""), pad=4)
