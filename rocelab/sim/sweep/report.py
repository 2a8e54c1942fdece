"""The document of a sweep: small multiples of every figure, and a table.

The keys decide the layout: schemes are lines, the numeric key with most values is the x axis, two
more keys are columns and rows of panels; any others go into the lines. Points are medians over
repeats, bands span the least to the greatest.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rocelab.base.quantities import Unit, axis_unit, formatted
from rocelab.base.units import DURATION, RATE, SHARE, SIZE
from rocelab.base.wording import counted
from rocelab.hosts.model import TIMELESS
from rocelab.labfile.servers import KEY
from rocelab.labfile.source import Data, written
from rocelab.report.document import (
    Block,
    Code,
    Column,
    Document,
    Figure,
    Hyperlink,
    Note,
    Section,
    Table,
    Tone,
)
from rocelab.report.palette import CATEGORIES, GRID
from rocelab.report.plots import add_key, figure_of, name_axis, styled
from rocelab.sim.sweep.answer import main_figure, sweep_answer
from rocelab.sim.sweep.cells import BETWEEN_WARNINGS, WARNINGS
from rocelab.sim.sweep.command import command_of
from rocelab.sim.sweep.store import Row, as_words
from rocelab.sim.sweep.sweep_spec import Axis, Sweep
from rocelab.sim.sweep.titles import title_of, unit_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_COSTS = ("wall_s", "peak_memory_bytes", "error")
NOT_DRAWN = ("algbw",)
"""Figures that follow from others: only in the page's table."""

MOST_COMMANDS = 200
MOST_COMMAND_BYTES = 1_000_000
"""Limits the commands in a page: jobs can list thousands of NICs."""

MOST_DRAWN = 40
"""Characters of a value in a plot."""

_SCHEMES = ("lab.scheme", "lab.scheme.kind")
_MARKERS = "os^Dv*PX"

Setting = tuple[Data, ...]


@dataclass(frozen=True, slots=True)
class PanelLayout:
    """The role of each axis: `lines` has all axes that lines distinguish."""

    x: Axis
    lines: tuple[Axis, ...]
    columns: Axis | None
    rows: Axis | None


def layout_of(axes: Sequence[Axis]) -> PanelLayout:
    """The role of each axis of a sweep in its plots; seeds become bands."""
    several = [axis for axis in axes if len(axis.settings) > 1] or list(axes)
    left = [axis for axis in several if not axis.repeats] or several
    numeric = [axis for axis in left if numbers(axis) is not None]
    scheme = next((axis for axis in left if set(axis.keys) & set(_SCHEMES)), None)
    x = max(numeric or left, key=lambda axis: (axis is not scheme, len(axis.settings)))
    left.remove(x)
    lines = scheme if scheme in left else min(left, key=lambda a: len(a.settings), default=None)
    others = [axis for axis in left if axis is not lines]
    columns, rows = [*others[:2], None, None][:2]
    told_by_line = ([] if lines is None else [lines]) + others[2:]
    return PanelLayout(x, tuple(told_by_line), columns, rows)


def numbers(axis: Axis) -> list[float] | None:
    """An axis's values as numbers, quantities such as 64MB in base units; None if their kinds
    differ."""
    values = [setting[0] for setting in axis.settings]
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return [float(value) for value in values if isinstance(value, int | float)]
    for quantity in (SIZE, RATE, DURATION, SHARE):
        try:
            return [float(quantity.parse(value)) for value in values]
        except ValueError:
            continue
    return None


def sweep_document(sweep: Sweep, rows: Sequence[Row]) -> Document:
    """All of a sweep."""
    good = [row for row in rows if row["error"] is None]
    layout, names = layout_of(sweep.axes), figure_names(sweep, good)
    main = main_figure(names)
    plot = None if main is None else Figure("answer", partial(small_multiples, layout, good, main))
    repeats = [axis for axis in sweep.axes if axis.repeats]
    repeated = (
        f", repeated over {len(axis.settings)} values of `{axis.label}`" for axis in repeats
    )
    return Document(
        f"Sweep of {sweep.source.data['lab']}{_hosts(sweep)}",
        (
            Section("Cells that failed", tuple(_failed(sweep, rows))),
            *(
                Note(f"{settings_text(sweep, warned[0])}: {text}", Tone.CAUTION)
                for text, warned in warned_rows(good).items()
            ),
            *_plots(layout, good, [name for name in names if name != main], repeats=bool(repeats)),
            Section("All figures", _all_figures(sweep, good, repeats=bool(repeats))),
            Section("The page of a cell", tuple(_cell_pages(sweep, good, repeats=bool(repeats)))),
            Section("What was asked", tuple(_asked(sweep))),
        ),
        kind="rocelab sweep",
        card=sweep_answer(sweep, rows, names, plot),
        lead=f"{counted(len(rows), 'simulation')}{''.join(repeated)}. Without `engine: packets` or "
        "`links` flows are fluids with max-min fair rates, which have no queues, losses and "
        "congestion control.",
    )


def _hosts(sweep: Sweep) -> str:
    """What the hosts of all cells were taken for, where no key says it."""
    blocks: list[object] = [part.source.data for part in sweep.parts.values()]
    blocks.append(sweep.parts["job"].source.data.get("collective"))
    is_set = any(isinstance(block, dict) and KEY in block for block in blocks)
    is_swept = any(key.rpartition(".")[2] == KEY for key in sweep.swept)
    return "" if is_set or is_swept else f", {TIMELESS}"


def _failed(sweep: Sweep, rows: Sequence[Row]) -> Iterator[Note]:
    for row in rows:
        if row["error"] is not None:
            yield Note(f"{settings_text(sweep, row)}: {row['error']}", Tone.BAD)


def _plots(
    layout: PanelLayout, rows: Sequence[Row], names: Sequence[str], *, repeats: bool
) -> Iterator[Section]:
    text = "Lines are medians over repeats, bands go from the least to the greatest."
    note = (Note(text, Tone.QUIET),) if repeats else ()
    for number, name in enumerate(name for name in names if name not in NOT_DRAWN):
        figure = Figure(f"plot{number}", partial(small_multiples, layout, rows, name))
        title = title_of(name)
        yield Section(f"{title[:1].upper()}{title[1:]}", (figure, *note))


def _all_figures(sweep: Sweep, rows: Sequence[Row], *, repeats: bool) -> tuple[Block, ...]:
    text = "Medians over repeats, with the least and the greatest."
    note = (Note(text, Tone.QUIET),) if repeats else ()
    table = figures_table(sweep, rows, figure_names(sweep, rows))
    pages = len(commands(sweep, rows))
    links = (
        Hyperlink(f"cell {number}", f"#cell-{number}") if number <= pages else ""
        for number in range(1, len(table.rows) + 1)
    )
    linked = tuple((*row, link) for row, link in zip(table.rows, links, strict=True))
    return (*note, replace(table, columns=(*table.columns, Column("its page")), rows=linked))


def _cell_pages(sweep: Sweep, rows: Sequence[Row], *, repeats: bool) -> Iterator[Block]:
    texts = commands(sweep, rows)
    if not texts:
        return
    text = (
        "A sweep keeps the figures of its cells. A command below simulates one again, and writes a "
        "page with its fabric, the loads of its links and its slowest flows. Give it to a shell in "
        "the folder in which the sweep ran."
    )
    settings = sum(1 for _ in _by_settings(sweep, rows))
    if repeats:
        text += " The cell is the first of its row's repeats."
    if len(texts) < settings:
        text += f" The first {len(texts)} of {settings:,} rows have a command."
    yield Note(text)
    for number, (setting, command) in enumerate(texts, 1):
        yield Code(command, title=f"cell {number}: {setting}", anchor=f"cell-{number}")


def _asked(sweep: Sweep) -> Iterator[Code]:
    yield Code(written(sweep.source.data))
    for name in ("lab", "job"):
        if not sweep.parts[name].inside:
            yield Code(written(sweep.parts[name].source.data), title=f"the {name} in full")


def warned_rows(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """The rows by their warnings; those that differ in numbers only are one, the first."""
    texts: dict[str, str] = {}
    by_warning: dict[str, list[Row]] = {}
    for row in rows:
        for text in filter(None, (row.get(WARNINGS) or "").split(BETWEEN_WARNINGS)):
            first = texts.setdefault(re.sub(r"[0-9][0-9.,]*", "", text), text)
            by_warning.setdefault(first, []).append(row)
    return by_warning


def figure_names(sweep: Sweep, rows: Sequence[Row]) -> list[str]:
    """The columns that hold figures of simulations."""
    known = {*sweep.swept, *_COSTS}
    names = dict.fromkeys(name for row in rows for name in row if name not in known)
    return [name for name in names if any(isinstance(row.get(name), int | float) for row in rows)]


def figures_table(
    sweep: Sweep, rows: Sequence[Row], names: Sequence[str], *, extremes: bool = True
) -> Table:
    """A row for each setting of all keys but seeds: medians, the extremes if there are repeats, and
    the cost of a cell."""
    keys = [key for axis in sweep.axes if not axis.repeats for key in axis.keys]
    labels = keys if extremes else [key.rpartition(".")[2] for key in keys]
    figures = (*names, "wall_s", "peak_memory_bytes")
    return Table(
        "",
        (
            *map(Column, labels),
            Column("cells", Unit.COUNT),
            *(Column(title_of(name), Unit.FIGURE) for name in figures),
        ),
        tuple(
            (
                *(_text(value) for setting in settings for value in setting),
                len(of_settings),
                *(_spread_text(of_settings, name, extremes) for name in figures),
            )
            for settings, of_settings in _by_settings(sweep, rows)
        ),
        names=max(1, len(keys)),
    )


def commands(sweep: Sweep, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The settings of the first cell of each of the first rows, and the command of its page."""
    pairs = []
    size = 0
    for number, (_, group) in enumerate(_by_settings(sweep, rows), 1):
        values = {key: group[0][key] for key in sweep.swept}
        text = command_of(sweep, values, f"cell-{number}")
        size += len(text)
        if number > MOST_COMMANDS or size > MOST_COMMAND_BYTES:
            break
        pairs.append((settings_text(sweep, group[0]), text))
    return pairs


def _by_settings(
    sweep: Sweep, rows: Sequence[Row]
) -> Iterator[tuple[tuple[Setting, ...], list[Row]]]:
    """The settings of all keys but seeds that have rows, with these."""
    axes = [axis for axis in sweep.axes if not axis.repeats]
    for settings in itertools.product(*(axis.settings for axis in axes)):
        if group := _having(rows, list(zip(axes, settings, strict=True))):
            yield settings, group


def small_multiples(layout: PanelLayout, rows: Sequence[Row], name: str) -> Drawing:
    """One figure over the x axis: a line per scheme, a panel for each setting of two more keys."""

    def draw() -> Drawing:
        columns = _settings(layout.columns)
        lines = _settings(layout.rows)
        scale, unit = axis_unit(max(_numbers(rows, name)), unit_of(name))
        figure = figure_of(11, 0.9 + 2.3 * len(lines))
        grid = figure.subplots(len(lines), len(columns), sharex=True, sharey=True, squeeze=False)
        for (row, down), (column, across) in itertools.product(
            enumerate(lines), enumerate(columns)
        ):
            axis = grid[row][column]
            panel = _having(rows, [*down, *across])
            _panel(axis, layout, panel, name, scale)
            axis.set_title(", ".join(_setting_text(part) for part in (*across, *down)))
        for axis in grid[-1]:
            axis.set_xlabel(layout.x.label)
        for axis in grid[:, 0]:
            name_axis(axis.yaxis, title_of(name), unit)
        handles, labels = grid[0][0].get_legend_handles_labels()
        if layout.lines:
            add_key(figure, handles, labels)
        return figure

    return styled(draw)()


def _panel(axis: Axes, layout: PanelLayout, rows: Sequence[Row], name: str, scale: float) -> None:
    x = numbers(layout.x)
    at = list(range(len(layout.x.settings))) if x is None else x
    parts = itertools.product(*(axis.settings for axis in layout.lines))
    for number, settings in enumerate(parts):
        chosen = list(zip(layout.lines, settings, strict=True))
        group = _having(rows, chosen)
        points = []
        for place, setting in zip(at, layout.x.settings, strict=True):
            values = _numbers(_having(group, [(layout.x, setting)]), name)
            if values:
                points.append((place, statistics.median(values), min(values), max(values)))
        points.sort()
        colour = CATEGORIES[number % len(CATEGORIES)]
        columns = [[point[part] for point in points] for part in range(4)]
        places, middle, low, high = ([value / scale for value in column] for column in columns)
        places = columns[0]
        axis.fill_between(places, low, high, color=colour, alpha=0.18, linewidth=0)
        axis.plot(
            places,
            middle,
            color=colour,
            marker=_MARKERS[number % len(_MARKERS)],
            markersize=4,
            linewidth=1.4,
            # After a space: a legend leaves out what begins with an underscore.
            label=" " + ", ".join(_setting_text(part) for part in chosen),
        )
    if min(at) > 0 and max(at) >= 8 * min(at):
        axis.set_xscale("log", base=2)
    axis.set_xticks(at, [_cut(_text(setting[0])) for setting in layout.x.settings])
    axis.set_xticks([], minor=True)
    axis.set_ylim(bottom=0)
    axis.grid(axis="y", color=GRID, linewidth=0.6)


def _settings(axis: Axis | None) -> list[list[tuple[Axis, Setting]]]:
    return [[]] if axis is None else [[(axis, setting)] for setting in axis.settings]


def _having(rows: Sequence[Row], chosen: Sequence[tuple[Axis, Setting]]) -> list[Row]:
    """The rows with these settings."""
    wanted = [
        (key, as_words(value))
        for axis, setting in chosen
        for key, value in zip(axis.keys, setting, strict=True)
    ]
    return [row for row in rows if all(as_words(row[key]) == value for key, value in wanted)]


def _numbers(rows: Sequence[Row], name: str) -> list[float]:
    values = (row.get(name) for row in rows)
    return [float(value) for value in values if isinstance(value, int | float)]


def _spread_text(rows: Sequence[Row], name: str, extremes: bool) -> str | None:
    values = _numbers(rows, name)
    if not values:
        return None
    unit = unit_of(name)
    low, middle, high = (
        formatted(value, unit) for value in (min(values), statistics.median(values), max(values))
    )
    return middle if low == high or not extremes else f"{middle} ({low} to {high})"


def settings_text(sweep: Sweep, row: Row) -> str:
    """The values of the swept keys of a row."""
    return ", ".join(f"{key}: {_text(row[key])}" for key in sweep.swept)


def _setting_text(part: tuple[Axis, Setting]) -> str:
    axis, setting = part
    word = _cut(_text(setting[0]))
    return word if isinstance(setting[0], str) else f"{axis.label.rpartition('.')[2]} {word}"


def _cut(text: str) -> str:
    """Text for a plot, which a long one would push out of its figure; the table has it in full."""
    most = MOST_DRAWN // 2
    return text if len(text) <= MOST_DRAWN else f"{text[:most]}…{text[1 - most :]}"


def _text(value: Data) -> str:
    return as_words(value) or "-"
