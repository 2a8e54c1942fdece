"""Tables that keep every name and figure whole on a terminal of any width.

Text wraps between words; columns that still do not fit follow below, beside the names of their
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text, TextType

READABLE = 16
"""Longer text is not wrapped narrower than this."""

_WIDE, _TIGHT = (0, 1), (0, 1, 0, 0)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The width of a column in characters: at least, without broken words, and on one line."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class TablePart:
    """Columns side by side, by index, with the width of each."""

    columns: tuple[int, ...]
    widths: tuple[int, ...]
    tight: bool


class WholeTable(Table):
    """A table whose first `names` columns identify the rows: they are repeated if the other columns
    do not all fit beside them."""

    def __init__(self, title: str, names: int) -> None:
        super().__init__(title=title, box=box.SIMPLE_HEAD, pad_edge=False)
        self.names = names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wanted = [self._wanted(console, options, column) for column in self.columns]
        if self.title:
            yield _annotation(console, self.title, "table.title")
        for part in fitted(wanted, self.names, options.max_width):
            yield self._part(part)
        if self.caption:
            yield _annotation(console, self.caption, "table.caption")

    def _wanted(self, console: Console, options: ConsoleOptions, column: Column) -> Wanted:
        """Right-aligned figures are not wrapped; their heading may be."""
        free = options.update(max_width=max(options.max_width, 10**4))
        heading = Measurement.get(console, free, column.header if self.show_header else "")
        cells = [Measurement.get(console, free, cell) for cell in column.cells]
        most = max((heading.maximum, *(cell.maximum for cell in cells)))
        if column.no_wrap:
            return Wanted(most, most)
        if column.justify == "right":
            return Wanted(max((heading.minimum, *(cell.maximum for cell in cells))), most)
        least = max((heading.minimum, *(cell.minimum for cell in cells)))
        return Wanted(max(least, min(most, READABLE)), most)

    def _part(self, part: TablePart) -> Table:
        """A plain table of these columns."""
        made = Table(
            box=self.box,
            pad_edge=False,
            show_header=self.show_header,
            padding=_TIGHT if part.tight else _WIDE,
        )
        for index, width in zip(part.columns, part.widths, strict=True):
            column = replace(self.columns[index], width=width, overflow="fold", _cells=[])
            column._index = len(made.columns)
            made.columns.append(column)
        cells = [list(self.columns[index].cells) for index in part.columns]
        for number, row in enumerate(self.rows):
            made.add_row(
                *(column[number] for column in cells), style=row.style, end_section=row.end_section
            )
        return made


def _annotation(console: Console, text: TextType, style: str) -> Text:
    return console.render_str(text, style=style, highlight=False) if isinstance(text, str) else text


def fitted(wanted: Sequence[Wanted], names: int, room: int) -> list[TablePart]:
    """The columns in as few parts as fit into `room` characters, each beside the first `names`.

    A column that is too wide for that stands beside the first name alone. If even these two do not
    fit they get narrower than their minimum.
    """
    every = tuple(range(len(wanted)))
    if sum(wanted[index].most for index in every) + _gaps(len(every), tight=False) <= room:
        return [TablePart(every, tuple(width.most for width in wanted), tight=False)]
    parts: list[tuple[int, ...]] = []
    columns = every[:names]
    for index in every[names:]:
        if _least(wanted, (*columns, index)) > room and len(columns) > 1:
            parts.append(columns)
            columns = every[:names] if _least(wanted, (*every[:names], index)) <= room else (0,)
        columns = (*columns, index)
    parts.append(columns)
    return [_narrowed(wanted, part, room) for part in parts]


def _least(wanted: Sequence[Wanted], columns: Sequence[int]) -> int:
    return sum(wanted[index].least for index in columns) + _gaps(len(columns), tight=True)


def _gaps(columns: int, *, tight: bool) -> int:
    """Characters of a line outside cells: the box has one at each edge and one between two columns,
    besides their padding."""
    return 2 + (columns - 1) * (2 if tight else 3) if columns else 0


def _narrowed(wanted: Sequence[Wanted], columns: tuple[int, ...], room: int) -> TablePart:
    """The columns, narrowed until they fit, always the widest one that can still be narrowed."""
    widths = [wanted[index].most for index in columns]
    tight = sum(widths) + _gaps(len(columns), tight=False) > room
    over = sum(widths) + _gaps(len(columns), tight=tight) - room
    for may_break in (False, True):
        floors = [1 if may_break else wanted[index].least for index in columns]
        while over > 0:
            able = [place for place, floor in enumerate(floors) if widths[place] > floor]
            if not able:
                break
            widths[max(able, key=lambda place: widths[place])] -= 1
            over -= 1
    return TablePart(columns, tuple(widths), tight)
