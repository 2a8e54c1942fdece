"""Where the time of a reconvergence went: a section with a table and a waterfall for each event."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit, axis_unit, duration
from rocelab.report.document import Column, Figure, Note, Row, Section, Table, columns
from rocelab.report.order import event_name
from rocelab.report.palette import (
    DECIDING,
    GRID,
    HOLDING,
    INK,
    INSTALLING,
    UNDETECTED,
    WRITING,
)
from rocelab.report.plots import MS, add_key, figure_of, name_axis, styled
from rocelab.results.stages import HOLD_NS, DetectionCause, Resolution, Stages, SwitchStages

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

MAX_SWITCHES = 40
LEAST_HOLD_NS = HOLD_NS - MS
"""A switch that decided sooner after it had detected did not hold the change back."""

CAUSES = {
    DetectionCause.CARRIER: "carrier",
    DetectionCause.BFD: "BFD",
    DetectionCause.HOLD_TIMER: "hold timer",
    DetectionCause.PEER: "neighbour's update",
    DetectionCause.SESSION_CLOSED: "session closed",
    DetectionCause.SESSION_UP: "session up",
    DetectionCause.ADMIN: "command",
    DetectionCause.OTHER: "other",
}
"""The mechanism that detected a failure, in words."""

COLUMNS = ("detected", "session", "best path", "zebra", "kernel", "packets")

SPANS = (
    ("until detected", UNDETECTED),
    ("BGP", DECIDING),
    (f"BGP's hold of {HOLD_NS // MS} ms", HOLDING),
    ("until zebra", INSTALLING),
    ("until kernel", WRITING),
)


def stages_sections(stages: Sequence[Stages], name: str) -> list[Section]:
    """The stages of every switch after each event in which one took part; `name` is the phase's."""
    tables = [
        block
        for number, event in enumerate(stages)
        if event.switches
        for block in (
            Figure(f"{name}-stages{number}", partial(waterfall, event)),
            stages_table(event, number + 1),
        )
    ]
    return [Section("Where the time went", (_EXPLAINED, *tables))] if tables else []


def stages_table(stages: Stages, number: int) -> Table:
    """The stages of every switch after the event of that number, in order of detection."""
    return Table(
        f"Where the time went after {event_name(number)}, {stages.event}: ms, lab",
        (
            *columns(Unit.TEXT, "switch", "by"),
            *columns(Unit.FIGURE, *COLUMNS),
            Column("route", Unit.FIGURE),
            Column("changes", Unit.COUNT),
        ),
        tuple(map(_row, stages.switches)),
        caption=resolution_text(stages.resolution),
    )


_EXPLAINED = Note(
    "Switch by switch, from the event to the last change of its FIB, as links, FRR's own logs, the "
    "kernel and the packets show it on one clock. Milliseconds after the event; packets: when the "
    "last flow that crossed the switch arrived again. That can be before the switch has detected "
    "anything: another switch before it had moved the flow.",
    page_only=True,
)


def _row(switch: SwitchStages) -> Row:
    instants_ns = (
        switch.detected_ns,
        switch.session_ns,
        switch.best_path_ns,
        switch.zebra_ns,
        switch.kernel_ns,
        switch.first_good_packet_ns,
    )
    return (
        switch.node,
        None if switch.detected_by is None else CAUSES[switch.detected_by],
        *map(_ms, instants_ns),
        switch.prefix or None,
        switch.changes,
    )


def resolution_text(resolution: Resolution) -> str:
    """The resolution of the stages, as a sentence."""
    delay = resolution.read_delay
    parts = [f"log stamps are cut to {duration(resolution.log_stamp_ns)}"]
    if delay is not None:
        parts.append(
            f"netlink events were read {duration(delay.median_ns)} late on the median, "
            f"{duration(delay.p99_ns)} at the 99th percentile of {delay.probes}"
        )
    if resolution.packet_interval_ns is not None:
        parts.append(f"packets came every {duration(resolution.packet_interval_ns)}")
    return "; ".join(parts)


@styled
def waterfall(stages: Stages) -> Drawing | None:
    """A bar per switch from the event to its last FIB change, and a mark where packets arrived
    again; None if no switch took part. With very many switches, only those that ended last."""
    switches = longest_stages(stages, MAX_SWITCHES)
    if not switches:
        return None
    figure = figure_of(11, 1.2 + 0.24 * len(switches))
    axis = figure.subplots()
    scale, unit = axis_unit(last_ns(switches), Unit.NS)
    draw_stages(axis, switches, scale)
    axis.set_xlim(left=0)
    name_axis(axis.xaxis, "after the event", unit, "lab")
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    marks = legend_of_stages()
    add_key(figure, marks, [str(mark.get_label()) for mark in marks])
    return figure


def last_ns(switches: Sequence[SwitchStages]) -> int:
    """When all is over in these switches, after the event."""
    return max(max(_spans(one)[-1][1], one.first_good_packet_ns or 0) for one in switches)


def draw_stages(axis: Axes, switches: Sequence[SwitchStages], scale: float) -> None:
    """A bar per switch, in units of `scale` ns after the event, and a mark where packets arrived
    again."""
    for row, one in enumerate(switches):
        for (_, colour), (start_ns, end_ns) in zip(SPANS, _spans(one), strict=True):
            if end_ns > start_ns:
                axis.barh(row, (end_ns - start_ns) / scale, left=start_ns / scale, color=colour)
        if one.first_good_packet_ns is not None:
            axis.plot(one.first_good_packet_ns / scale, row, "|", color=INK, markersize=11)
    axis.set_yticks(range(len(switches)), [_label(one) for one in switches])
    axis.set_ylim(len(switches) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)


def legend_of_stages() -> list[Artist]:
    """The key of `draw_stages`."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    marks: list[Artist] = [Patch(color=colour, label=label) for label, colour in SPANS]
    marks.append(Line2D([], [], color=INK, marker="|", linestyle="", label="packets again"))
    return marks


def _spans(one: SwitchStages) -> tuple[tuple[int, int], ...]:
    """The start and the end of each of `SPANS`; an unknown one has length 0. The hold is right
    before the decision: bgpd begins it anew once it has cleared a dead session."""
    best_ns, detected_ns = one.best_path_ns, one.detected_ns
    held_ns = best_ns
    if best_ns is not None and detected_ns is not None and best_ns - detected_ns >= LEAST_HOLD_NS:
        held_ns = max(detected_ns, best_ns - HOLD_NS)
    spans, reached = [], 0
    for instant_ns in (detected_ns, held_ns, best_ns, one.zebra_ns, one.kernel_ns):
        end_ns = reached if instant_ns is None else max(reached, instant_ns)
        spans.append((reached, end_ns))
        reached = end_ns
    return tuple(spans)


def longest_stages(stages: Stages, most: int) -> list[SwitchStages]:
    """The switches in order of detection; of more than `most` those that ended last."""
    if len(stages.switches) <= most:
        return list(stages.switches)
    last = sorted(stages.switches, key=lambda one: -_spans(one)[-1][1])[:most]
    return [one for one in stages.switches if one in last]


def _label(one: SwitchStages) -> str:
    return one.node if one.detected_by is None else f"{one.node}  {CAUSES[one.detected_by]}"


def _ms(instant_ns: int | None) -> str | None:
    return None if instant_ns is None else f"{instant_ns / MS:.2f}"
