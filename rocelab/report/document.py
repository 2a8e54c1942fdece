"""What a command prints or a page shows, as one tree of frozen data.

A module that reports something builds a `Document` once, and `rocelab.report.renderers` shows it:
`terminal` on a console, `page` as an HTML page, `markdown` for CI servers. The tree says what is
there and never how it looks: rows hold numbers, columns say their unit, and
`rocelab.base.quantities` writes both.

    Document
      card: Answer       what happened: a sentence, at most four Cards, a plot
      answer, blocks: Block ...
        Chapter    a heading over sections
        Section    a heading over blocks; `folded` where a medium can fold
        Table      Column ..., rows of cells
        Figure     a plot
        Note       a sentence, with a Tone
        Items      a list of sentences
        Code       text as it is: a command, JSON, a picture of characters
        Cards      the figures that matter most
        Replay     the runs to play again

What has room only on a page is `page_only`: explanations, lists that a reader looks up. `Figure`,
`Cards` and `Replay` always are. A table without rows, and a section without anything, is left out.
Notes, leads and items may hold `code` in backticks.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from rocelab.base.quantities import Unit, formatted

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

NOTHING = "-"
"""The text of a cell without a value."""

MOST_FIGURES = 4
"""The most figures of an answer: as many as a reader takes in at once."""


class PageRecording(Protocol):
    """Runs that a page plays again, such as `rocelab.report.replay.recording` makes them: JSON
    values for its script, and the dilation of the lab."""

    @property
    def dilation(self) -> float: ...

    def document(self) -> dict[str, Any]: ...


class Tone(StrEnum):
    """How a text is meant; every text is complete without it."""

    PLAIN = "plain"
    GOOD = "good"
    BAD = "bad"
    CAUTION = "caution"
    STRONG = "strong"
    QUIET = "quiet"


@dataclass(frozen=True, slots=True)
class Toned:
    """A text with a tone, such as a verdict."""

    text: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Hyperlink:
    """A text that leads to `target`, an address or an anchor of the page."""

    text: str
    target: str


@dataclass(frozen=True, slots=True)
class Value:
    """A number with its own unit, in a column of several; see `formatted` for `resolution`."""

    number: float | None
    unit: Unit
    resolution: float = 0.0


Cell = str | int | float | Value | Toned | Hyperlink | None
Row = tuple[Cell, ...]
Text = str | tuple[str | Hyperlink, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `unit` is that of its numbers; all but TEXT stand right. `unbroken`: no
    cell is ever wrapped."""

    title: str
    unit: Unit = Unit.TEXT
    page_only: bool = False
    unbroken: bool = False

    @property
    def is_text(self) -> bool:
        return self.unit is Unit.TEXT


def columns(unit: Unit, *titles: str) -> tuple[Column, ...]:
    """Columns of one unit."""
    return tuple(Column(title, unit) for title in titles)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells, one for each column."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    names: int = 1
    """How many columns, from the first, identify a row."""

    caption: str = ""
    foot: Row = ()
    """A last row, such as totals."""

    most: int | None = None
    """How many rows are enough where there is no page."""

    sortable: bool = True
    """Without it the order of the rows means something."""

    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot: `draw` makes it where it is wanted, None if there is nothing to draw; a page then has
    the sentence `instead`. `name` is unique in a document."""

    name: str
    draw: Callable[[], Drawing | None]
    instead: str = ""

    def is_same(self, other: Figure) -> bool:
        """Whether both draw the same of the same data."""
        match self.draw, other.draw:
            case partial(func=one, args=data), partial(func=another, args=others):
                same = len(data) == len(others) and all(map(operator.is_, data, others))
                return one is another and same
        return False


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or a paragraph."""

    text: Text
    tone: Tone = Tone.PLAIN
    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Items:
    """Sentences, one below the other."""

    texts: tuple[Text, ...]
    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Code:
    """Text as it is. With a `title` a page folds it below that; `anchor` is what a `Link` names."""

    text: str
    title: str = ""
    anchor: str = ""
    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Card:
    """A figure that matters: its value, its spread, and which expectation it missed."""

    title: str
    value: str
    spread: str = ""
    missed: str = ""


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards side by side."""

    cards: tuple[Card, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """What happened, as an engineer would say it. sentence: empty if nothing was measured. figures:
    at most `MOST_FIGURES`, most important first. plot: of the worst event; pages begin with
    all three below the verdict, a terminal ends with the sentence."""

    sentence: str
    figures: tuple[Card, ...] = ()
    plot: Figure | None = None

    def __post_init__(self) -> None:
        assert len(self.figures) <= MOST_FIGURES


@dataclass(frozen=True, slots=True)
class Replay:
    """Runs to play again, or with `of_cells` the cells of a comparison to choose from. `record`
    makes them where they are wanted, None if there is nothing to play."""

    record: Callable[[], PageRecording | None]
    of_cells: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading."""

    title: str
    blocks: tuple[Block, ...]
    folded: bool = False
    page_only: bool = False


@dataclass(frozen=True, slots=True)
class Chapter:
    """Sections under a heading, such as those of a drill's phase."""

    title: str
    blocks: tuple[Block, ...]


Block = Section | Chapter | Table | Figure | Note | Items | Code | Cards | Replay


@dataclass(frozen=True, slots=True)
class Document:
    """A report. On a page `blocks` are folded."""

    title: str
    blocks: tuple[Block, ...]
    name: str = ""
    """What was run, such as `link-flap`."""

    verdict: Toned | None = None
    """How it ended, such as `passed`; None for a report without a verdict."""

    kind: str = ""
    """The command, such as `rocelab drill`, and on what."""

    lead: Text = ""
    """A paragraph."""

    meta: str = ""
    """Where and when."""

    card: Answer | None = None
    """What happened. Pages begin with it; a terminal, where the last lines are seen, ends with
    it."""

    answer: tuple[Block, ...] = ()
    """What a reader wants to know next; it follows `card`."""


def text_of(cell: Cell, column: Column) -> str:
    """A cell's text in every medium."""
    match cell:
        case None | Value(None):
            return NOTHING
        case str():
            return cell
        case Toned() | Hyperlink():
            return cell.text
        case Value():
            assert cell.number is not None
            return formatted(cell.number, cell.unit, cell.resolution)
        case _:
            return formatted(cell, column.unit)


def tone_of(cell: Cell) -> Tone:
    """A cell's tone."""
    return cell.tone if isinstance(cell, Toned) else Tone.PLAIN


def plain(text: Text) -> str:
    """A text without its links."""
    if isinstance(text, str):
        return text
    return "".join(part.text if isinstance(part, Hyperlink) else part for part in text)


def without_zeros(table: Table) -> Table:
    """A table without its columns of which every cell is 0: the caption names them."""
    zero = [
        place
        for place, column in enumerate(table.columns)
        if place >= table.names and table.rows and all(row[place] == 0 for row in table.rows)
    ]
    if not zero:
        return table

    def kept(row: Row) -> Row:
        return tuple(cell for place, cell in enumerate(row) if place not in zero)

    titles = ", ".join(table.columns[place].title for place in zero)
    return replace(
        table,
        columns=tuple(column for place, column in enumerate(table.columns) if place not in zero),
        rows=tuple(map(kept, table.rows)),
        foot=kept(table.foot),
        caption="; ".join(filter(None, (table.caption, f"0 in every row: {titles}"))),
    )


def narrowed(table: Table) -> Table:
    """A table without the columns and rows that only pages have room for."""
    kept = [place for place, column in enumerate(table.columns) if not column.page_only]
    rows = table.rows[: table.most]
    more = len(table.rows) - len(rows)
    return replace(
        table,
        columns=tuple(table.columns[place] for place in kept),
        rows=tuple(tuple(row[place] for place in kept) for row in rows),
        foot=tuple(table.foot[place] for place in kept) if table.foot else (),
        caption="; ".join(filter(None, (f"and {more:,} more" if more else "", table.caption))),
    )
