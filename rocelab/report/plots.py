"""The plots of a drill's report, and their SVG for a page.

SVG text has no prolog, metadata or external references, and is deterministic. Matplotlib is loaded
on first use, never with a GUI.
"""

from __future__ import annotations

import functools
import io
import itertools
import math
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from rocelab.base import quantities
from rocelab.base.interpreter import imported
from rocelab.base.quantities import Unit
from rocelab.fabrics.door import roles
from rocelab.report.order import by_plan, changes_after, event_name, plan_title
from rocelab.report.palette import DELIVERED, EVENT, GRID, INK, LOST, MEASURED, MUTED
from rocelab.results.probes import Event, FibChange, FlowRecord, HashingRun, ProbeRun
from rocelab.routes.balance import LinkLoad, TierBalance

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis
    from matplotlib.figure import Figure

MS = 10**6
MAX_FLOWS = 60
MAX_BARS = 72
MAX_CLOSE_UPS = 2
PIXELS = 300
"""Across a panel: what is closer is drawn as one."""

FIB_KINDS = (
    ("fewer next hops", "v", INK),
    ("more next hops", "^", MUTED),
    ("other change", ".", MUTED),
)
"""Kinds of changes of a FIB, their markers and colours."""

SMALL = 8.5
"""The smallest text, in points: a page shows WIDE inches on 700 pixels or more."""

WIDE, NARROW = 11.0, 4.4
"""Inches of a plot, and of one for a phone."""

_of_wide: ContextVar[float] = ContextVar("_of_wide", default=1.0)
_LETTER, _MARK = 0.62, 30.0
"""The width of a letter, of a text's height; of a mark in a key with the gaps around, in points."""

LEAST_NS = 10_000
"""The least time on a logarithmic axis."""

MAX_NODES = 40

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 14,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.fontsize": SMALL,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "text.color": INK,
    # A name may hold two of `$`, between which matplotlib otherwise reads mathematics.
    "text.parse_math": False,
}


_P = ParamSpec("_P")
_T = TypeVar("_T")


def styled(draw: Callable[_P, _T]) -> Callable[_P, _T]:
    """Draw with our style, without changing matplotlib's global one."""

    @functools.wraps(draw)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with imported("matplotlib").rc_context(_STYLE):
            return draw(*args, **kwargs)

    return wrapped


@styled
def loss_timeline(repeat: ProbeRun) -> Figure:
    """A strip per flow, sent packets light and lost ones dark, over the whole run and around each
    event that lost packets."""
    flows = _shown(repeat.flows)
    close_ups = _close_ups(repeat)
    figure, grid = panels(1, 1 + len(close_ups), 1.1 + 0.17 * len(flows))
    (axes,) = grid
    begin, end = _extent(repeat)
    whole = (0, "the first event", (begin, end))
    for axis, (zero, event, (low, high)) in zip(axes, [whole, *close_ups], strict=True):
        scale, unit = quantities.axis_unit(max(high - zero, zero - low), Unit.NS)
        axis.hlines(
            range(len(flows)),
            (begin - zero) / scale,
            (end - zero) / scale,
            colors=DELIVERED,
            linewidth=5,
        )
        # A lost packet is thinner than a pixel of the whole run: draw one pixel.
        least = (high - low) // PIXELS
        # One path: a page with an element for each of many outages would be too large.
        lost = [
            (row, span)
            for row, record in enumerate(flows)
            for span in merged(_outages(record, end), least, low, high)
        ]
        axis.plot(
            [(at - zero) / scale for _, (start, stop) in lost for at in (start, stop, np.nan)],
            [y for row, _ in lost for y in (row, row, np.nan)],
            color=LOST,
            linewidth=5,
            solid_capstyle="butt",
        )
        axis.set_xlim((low - zero) / scale, (high - zero) / scale)
        axis.set_ylim(len(flows) - 0.4, -0.6)
        name_axis(axis.xaxis, f"after {event}", unit, "lab")
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        _mark_events(axis, repeat, zero, scale)
        axis.set_yticks([])
    for axis in axes[:: 1 if is_for_phones() else len(axes)]:
        axis.set_yticks(range(len(flows)), [flow_label(record) for record in flows])
    axes[0].set_title("whole run", pad=16)
    for colour, label in ((DELIVERED, "delivered"), (LOST, "lost")):
        axes[0].plot([], [], color=colour, linewidth=5, label=label)
    add_key(figure)
    for axis, (_, event, _) in zip(axes[1:], close_ups, strict=True):
        axis.set_title(f"around {event}", pad=16)
    for row, record in enumerate(flows):
        if record.measurement.lost:
            text = f"{record.measurement.lost:,} lost"
            axes[-1].annotate(text, (1.01, row), xycoords=("axes fraction", "data"), va="center")
    return figure


@styled
def fib_timeline(repeat: ProbeRun) -> Figure | None:
    """Every FIB change of every switch after each event, a panel per event over one time axis."""
    groups = [
        (number, event, changes)
        for number, (event, changes) in enumerate(changes_after(repeat), 1)
        if changes
    ]
    if not groups:
        return None
    nodes = [_nodes_of(changes) for _, _, changes in groups]
    figure = figure_of(11, 1 + sum(0.55 + 0.2 * len(names) for names in nodes))
    axes = figure.subplots(
        len(groups),
        1,
        sharex=True,
        squeeze=False,
        height_ratios=[1 + len(names) for names in nodes],
    )[:, 0]
    for axis, (number, event, changes), names in zip(axes, groups, nodes, strict=True):
        _changes(axis, event, changes, names)
        axis.set_title(title_of(f"after {event_name(number)}: {event.title}"), pad=4)
    after = [max(LEAST_NS, c.t_ns - event.t_ns) for _, event, changes in groups for c in changes]
    _time_axis(axes[-1], min(after), max(after))
    axes[-1].set_xlabel("after the event, lab")  # each tick has its unit
    for kind, marker, colour in FIB_KINDS:
        axes[0].plot([], [], marker, color=colour, markersize=4, label=kind)
    add_key(figure)
    return figure


def _nodes_of(changes: Sequence[FibChange]) -> list[str]:
    """The switches that changed most, top of the fabric first."""
    most = Counter(change.node for change in changes).most_common(MAX_NODES)
    return sorted((node for node, _ in most), key=_tier_order)


def _changes(axis: Axes, event: Event, changes: Sequence[FibChange], names: Sequence[str]) -> None:
    selection = [change for change in changes if change.node in names]
    for kind, marker, colour in FIB_KINDS:
        group = [
            change for change in selection if _kind(change.width_before, change.width_after) == kind
        ]
        # A page with a mark for each of very many changes would be too large.
        marks = {
            (round(np.log10(after_ns) * PIXELS / 3), names.index(change.node)): after_ns
            for change in group
            for after_ns in [max(LEAST_NS, change.t_ns - event.t_ns)]
        }
        axis.plot(
            list(marks.values()),
            [row for _, row in marks],
            marker,
            color=colour,
            markersize=4,
            alpha=0.6,
            markeredgewidth=0,
        )
    axis.set_ylim(len(names) - 0.4, -0.6)
    axis.set_yticks(range(len(names)), names)
    axis.tick_params(axis="y", length=0)
    axis.grid(color=GRID, linewidth=0.6)


@styled
def link_loads(runs: Sequence[HashingRun]) -> Figure | None:
    """A bar per link for each tier and direction, the seed plans side by side: packets over the
    mean of the tier, so that all bars have one scale."""
    ordered = by_plan(runs)
    if not ordered or not ordered[0].tiers:
        return None
    tiers = [(tier.tier, tier.direction) for tier in ordered[0].tiers]
    figure, grid = panels(len(tiers), len(ordered), 0.4 + 2.2 * len(tiers), sharey=True)
    for row, key in enumerate(tiers):
        for column, run in enumerate(ordered):
            loads = [load for load in run.loads if (load.tier, load.direction) == key]
            tier = next(tier for tier in run.tiers if (tier.tier, tier.direction) == key)
            axis = grid[row][column]
            _bars(axis, loads)
            axis.set_title(title_of(f"{plan_title(run)}: {_caption(tier)}"))
        for axis in grid[row][:: 1 if is_for_phones() else len(ordered)]:
            name_axis(axis.yaxis, f"{key[0]} {key[1].value}\nover the mean")
    return figure


def _time_axis(axis: Axes, first_ns: float, last_ns: float) -> None:
    """A logarithmic axis of time around these instants, with 1, 2, 5 of each decade."""
    low, high = first_ns * 0.7, last_ns * 1.4
    decades = range(int(np.log10(low)), int(np.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 4 else (1,)
    ticks = [float(step * 10**decade) for decade in decades for step in steps]
    axis.set_xscale("log")
    axis.set_xticks([], minor=True)
    marks = [tick for tick in ticks if low <= tick <= high]
    axis.set_xticks(marks, [quantities.duration(tick) for tick in marks])
    axis.set_xlim(low, high)


def _bars(axis: Axes, loads: Sequence[LinkLoad]) -> None:
    packets = np.array([load.packets for load in loads], np.float64)
    packets /= packets.mean() or 1.0
    groups = list(dict.fromkeys(load.group for load in loads))
    if len(loads) > MAX_BARS:
        axis.fill_between(
            np.arange(len(loads)), np.sort(packets)[::-1], step="post", color=MEASURED, linewidth=0
        )
        axis.set_xlabel(f"{len(loads):,} links, busiest first")
    else:
        places = np.array([i + 0.8 * groups.index(load.group) for i, load in enumerate(loads)])
        axis.bar(places, packets, color=MEASURED, width=0.85)
        names = [_far_name(load) for load in loads]
        axis.set_xticks(places, names, rotation=90)
        axis.tick_params(axis="x", length=0, pad=1)
        for group in groups:
            positions = places[[load.group == group for load in loads]]
            axis.annotate(
                group,
                (float(positions.mean()), 0),
                (0, -_LETTER * SMALL * max(map(len, names)) - SMALL),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
                ha="center",
                va="top",
                color=MUTED,
            )
    axis.axhline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    axis.margins(x=0.01)


def _caption(tier: TierBalance) -> str:
    balance = tier.all_links
    if balance.mmr is None or balance.jfi is None:
        return "no packets"
    return f"MMR {balance.mmr:.2f}, JFI {balance.jfi:.2f}, {balance.unused} unused"


def _far_name(load: LinkLoad) -> str:
    """The upper end's name, from the link's name `rtsw1:ctsw2`."""
    return load.link.partition(":")[2]


def _shown(flows: Sequence[FlowRecord]) -> list[FlowRecord]:
    """All flows in order, or only those that lost most if there are very many."""
    if len(flows) <= MAX_FLOWS:
        return list(flows)
    return sorted(flows, key=lambda record: -record.measurement.lost)[:MAX_FLOWS]


def flow_label(record: FlowRecord) -> str:
    """`f3  srv1-1 → srv2-1`."""
    return f"{record.flow.name}  {record.flow.source} → {record.flow.destination}"


def _outages(record: FlowRecord, end: int) -> list[tuple[int, int]]:
    """When each outage of the flow began and ended, at the latest at `end`, the end of the run."""
    return [
        (outage.start_ns, end if outage.end_ns is None else outage.end_ns)
        for outage in record.measurement.outages
    ]


def merged(
    outages: Sequence[tuple[int, int]], least: int, low: int, high: int
) -> list[tuple[int, int]]:
    """What is drawn of outages in order between `low` and `high`: each at least `least` long, and
    those that then touch as one."""
    spans: list[tuple[int, int]] = []
    for start, stop in outages:
        end = max(stop, start + least)
        if end < low or start > high:
            continue
        if spans and start <= spans[-1][1] + least:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return spans


def _extent(repeat: ProbeRun) -> tuple[int, int]:
    rate = repeat.flows[0].rate
    return rate.start_ns, rate.start_ns + rate.interval_ns * len(rate.sent)


def _close_ups(repeat: ProbeRun) -> list[tuple[int, str, tuple[int, int]]]:
    """The instant and the name of each of the two events that lost most packets, and a window
    around it, wide enough to see them."""
    end = _extent(repeat)[1]
    candidates = []
    for index, record in enumerate(repeat.events):
        outages = [
            outage
            for flow in repeat.flows
            for outage in flow.measurement.outages
            if outage.event == index
        ]
        if outages:
            last = max(end if outage.end_ns is None else outage.end_ns for outage in outages)
            resolution = int(max(flow.measurement.resolution_ns for flow in repeat.flows))
            width = max(last - record.event.t_ns, 5 * resolution)
            low = record.event.t_ns - width // 4
            window = (low, min(end, record.event.t_ns + width * 5 // 4))
            close_up = (record.event.t_ns, event_name(index + 1), window)
            candidates.append((sum(outage.lost for outage in outages), close_up))
    worst = sorted(candidates, key=lambda candidate: -candidate[0])[:MAX_CLOSE_UPS]
    return sorted(close_up for _, close_up in worst)


def name_axis(axis: XAxis | YAxis, title: str, unit: str = "", clock: str = "") -> None:
    """A title such as `after E3, ms, lab`, and ticks as `quantities` writes them."""
    axis.set_label_text(", ".join(filter(None, (title, unit, clock))))
    axis.set_major_formatter(lambda value, _: quantities.tick(value))


def number_event(axis: Axes, number: int, at: float) -> None:
    """The name of an event above its place on the time axis."""
    axis.annotate(
        event_name(number),
        (at, 1.0),
        xycoords=("data", "axes fraction"),
        xytext=(0, 1),
        textcoords="offset points",
        va="bottom",
        ha="center",
        color=INK,
    )


def _mark_events(axis: Axes, repeat: ProbeRun, zero_ns: int, scale: float) -> None:
    """A dashed line at each event, with its name where there is room."""
    low, high = axis.get_xlim()
    free = low
    for number, record in enumerate(repeat.events, 1):
        at = (record.event.t_ns - zero_ns) / scale
        if not low <= at <= high:
            continue
        axis.axvline(at, color=EVENT, linewidth=0.9, linestyle=(0, (2, 2)))
        if at >= free:
            number_event(axis, number, at)
            free = at + (high - low) / 20


def _kind(before: int | None, after: int | None) -> str:
    if before is not None and after is not None and before != after:
        return "fewer next hops" if after < before else "more next hops"
    return "other change"


def _tier_order(node: str) -> tuple[int, list[int]]:
    """The top of the fabric first, and rtsw2 before rtsw10."""
    named = re.search(r"([a-z]+)[0-9]+[ab]?$", node)
    role = roles().get(named[1]) if named else None
    return -role.tier if role else 0, [int(number) for number in re.findall(r"[0-9]+", node)]


@contextmanager
def for_phones() -> Iterator[None]:
    """Draw plots for a narrow screen: as high, with texts as large, and less wide."""
    token = _of_wide.set(NARROW / WIDE)
    try:
        yield
    finally:
        _of_wide.reset(token)


def figure_of(width: float, height: float) -> Figure:
    """An empty figure, in inches; less wide `for_phones`."""
    imported("matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width * _of_wide.get(), height), layout="constrained")


def fitting(most: int) -> int:
    """How many of `most` things side by side fit, at least one: all but `for_phones`."""
    return max(1, round(most * _of_wide.get()))


def title_of(text: str) -> str:
    """A title, in several lines where it does not fit into one."""
    return textwrap.fill(text, fitting(100)) if is_for_phones() else text


def key_columns(labels: Sequence[str], width: float = WIDE) -> int:
    """How many columns of a key fit into a plot of `width` inches."""
    room = 72 * width * _of_wide.get()
    for columns in range(len(labels), 1, -1):
        longest = (max(map(len, labels[place::columns])) for place in range(columns))
        if sum(_MARK + _LETTER * SMALL * letters for letters in longest) <= room:
            return columns
    return 1


def add_key(
    figure: Figure, marks: Sequence[Artist] | None = None, labels: Sequence[str] | None = None
) -> None:
    """The key of a figure, above it; of the labelled marks of all its axes by default."""
    if marks is None or labels is None:
        pairs = [axis.get_legend_handles_labels() for axis in figure.axes]
        marks = list(itertools.chain.from_iterable(handles for handles, _ in pairs))
        labels = list(itertools.chain.from_iterable(texts for _, texts in pairs))
    figure.legend(
        list(marks),
        list(labels),
        frameon=False,
        ncols=key_columns(labels),
        loc="outside upper right",
    )


def head(axis: Axes, title: str, pad: float = 14) -> None:
    """The title of a panel on the left, its key on the right; `for_phones` the key below the
    title."""
    _, labels = axis.get_legend_handles_labels()
    columns = key_columns(labels)
    low = 1.02 if is_for_phones() else 1.0
    rows = math.ceil(len(labels) / columns) if is_for_phones() else 0
    axis.set_title(title, pad=pad + 14 * rows)
    axis.legend(frameon=False, ncols=columns, loc="lower right", bbox_to_anchor=(1, low))


def is_for_phones() -> bool:
    """Whether what is drawn is `for_phones`."""
    return _of_wide.get() < 1


def panels(
    rows: int, columns: int, height: float, *, sharey: bool = False
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of so many inches with rows of panels; `for_phones` a row's are below each other."""
    if not is_for_phones():
        figure = figure_of(WIDE, height)
        return figure, figure.subplots(rows, columns, sharey=sharey, squeeze=False).tolist()
    figure = figure_of(WIDE, height * columns)
    grid = figure.subplots(rows * columns, 1, sharey=sharey, squeeze=False)
    return figure, grid.reshape(rows, columns).tolist()


@styled
def svg(figure: Figure, name: str) -> str:
    """The figure as SVG. `name` prefixes its ids, so that a page can hold several."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    FigureCanvasSVG(figure)
    figure.dpi = 72
    out = io.StringIO()
    with imported("matplotlib").rc_context({"svg.hashsalt": "rocelab"}):
        # savefig lays a figure out by drawing all of it once more.
        if (layout := figure.get_layout_engine()) is not None:
            layout.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(
            out, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type"))
        )
    text = out.getvalue()
    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{name}-", text[text.index("<svg") :])
