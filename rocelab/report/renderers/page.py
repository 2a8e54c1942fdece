"""A document as one HTML page that stands alone: no external scripts, fonts, styles or images.

Tables and figures need no script; with one, a page sorts its tables and plays runs again. The same
document gives the same bytes. What a page looks like is in `templates/report`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from markupsafe import Markup, escape

from rocelab.base.extras import MissingExtraError
from rocelab.base.templates import template
from rocelab.report import palette, plots
from rocelab.report.document import (
    Block,
    Cards,
    Cell,
    Chapter,
    Column,
    Document,
    Figure,
    Hyperlink,
    Note,
    PageRecording,
    Replay,
    Section,
    Table,
    Text,
    Tone,
    text_of,
    tone_of,
)
from rocelab.report.replay.page import data, script, shared_style, style, tables_script

NARROW = 6
"""Tables with up to as many columns are no wider than they must be."""
ROOMS = (340, 480, 600, 740)
"""Widths in pixels. A table that needs more than it gets has its rows as cards."""
LONG = 24
"""Letters of a text that has a line of a card of its own."""
LETTER, GAP = 7, 10
"""Pixels of a table's letter at its widest, and between columns."""

_CODE = re.compile("`([^`]+)`")
_NO_WORD = re.compile("[^a-z0-9]+")
_CLASSES = {Tone.GOOD: "good", Tone.BAD: "bad", Tone.CAUTION: "caution", Tone.STRONG: "strong"}


@dataclass(frozen=True, slots=True)
class Drawn:
    """A figure that is drawn."""

    markup: Markup
    narrow: Markup
    """For phones."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Runs that are recorded."""

    recording: PageRecording
    of_cells: bool


Shown = Block | Drawn | Recorded


def html(document: Document) -> str:
    """The page."""
    plot = None if document.card is None else document.card.plot
    answer, folded = (
        _shown(blocks, plot) for blocks in (document.answer, _headings(document.blocks))
    )
    blocks = (*answer, *folded)
    anchors = _anchors(blocks)
    replay = next((block for block in blocks if isinstance(block, Recorded)), None)
    return template("report/document.html.j2").render(
        document=document,
        answer=answer,
        blocks=folded,
        plot=Drawn(draw(plot), _for_phones(plot)) if plot is not None else None,
        dark=palette.page_colours(),
        anchor=lambda block: anchors[id(block)],
        tones=_CLASSES,
        contents=list(_contents(blocks, anchors)),
        style=shared_style() if replay is None else style(),
        script=tables_script() if replay is None else script(),
        recording="" if replay is None else data(replay.recording.document()),
        inline=inline,
        grid=grid,
        rooms=ROOMS,
        kind_of=lambda block: type(block).__name__,
    )


def grid(table: Table) -> Markup:
    """A table with its caption."""
    room = next((room for room in ROOMS if room >= _width(table)), ROOMS[-1])
    is_wide = _width(table) > ROOMS[0]
    classes = (
        "narrow" if len(table.columns) <= NARROW else "",
        "sortable" if table.sortable else "",
        f"from-{room}" if is_wide else "",
    )
    markup = template("report/table.html.j2").render(
        table=table,
        rows=rows(table),
        classes=" ".join(filter(None, classes)),
        is_wide=is_wide,
        caption=inline(table.caption),
    )
    # The template escapes what it is given.
    return Markup(markup)  # noqa: S704


def inline(text: Text) -> Markup:
    """A text with its links, what is in backticks as code."""
    parts = (text,) if isinstance(text, str) else text
    return Markup("").join(
        Markup('<a href="{}">{}</a>').format(part.target, part.text)
        if isinstance(part, Hyperlink)
        else _coded(part)
        for part in parts
    )


def rows(table: Table) -> Iterator[list[tuple[str, Markup]]]:
    """Of each row the cells, of each cell the classes and the content; the foot is the last."""
    for row in (*table.rows, *((table.foot,) if table.foot else ())):
        cells = []
        for cell, column in zip(row, table.columns, strict=True):
            tone = _CLASSES.get(tone_of(cell), "")
            text = text_of(cell, column)
            kind = "n" if not column.is_text else "long" if len(text) > LONG else ""
            classes = " ".join(filter(None, (kind, tone)))
            content = inline((cell,)) if isinstance(cell, Hyperlink) else escape(text)
            cells.append((classes, content))
        yield cells


def _width(table: Table) -> int:
    """Pixels that a table needs, about: numbers are never wrapped, texts between words."""
    cells = [*table.rows, *((table.foot,) if table.foot else ())]
    return sum(
        GAP + LETTER * max(_longest(column.title), *(_letters(row[n], column) for row in cells))
        for n, column in enumerate(table.columns)
        if cells
    )


def _letters(cell: Cell, column: Column) -> int:
    text = text_of(cell, column)
    return _longest(text) if column.is_text else len(text)


def _longest(text: str) -> int:
    """Letters of the longest word."""
    return max(map(len, text.split()), default=0)


def draw(figure: Figure) -> Markup:
    """A figure as SVG, empty if there is nothing to draw. Without matplotlib a line that says what
    is missing."""
    try:
        drawing = figure.draw()
    except MissingExtraError as error:
        return Markup('<p class="note">not drawn: {}: {}</p>').format(error.message, error.hint)
    # Matplotlib escapes the text it draws; names from a result cannot become markup.
    return Markup("" if drawing is None else palette.themed(plots.svg(drawing, figure.name)))  # noqa: S704


def _for_phones(figure: Figure) -> Markup:
    """A figure as SVG for a narrow screen."""
    with plots.for_phones():
        return draw(replace(figure, name=f"{figure.name}-narrow"))


def _coded(text: str) -> Markup:
    # Escaped before: what the pattern adds is the only markup.
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704


def _shown(blocks: Iterable[Block], answered: Figure | None) -> tuple[Shown, ...]:
    """The blocks with figures drawn, without those that are empty, and without the plot that the
    answer has already."""
    pieces: list[Shown] = []
    for block in blocks:
        match block:
            case Section() | Chapter():
                inner = _shown(block.blocks, answered)
                if inner:
                    pieces.append(replace(block, blocks=inner))  # type: ignore[arg-type]
            case Figure() if answered is not None and block.is_same(answered):
                pass
            case Figure():
                if markup := draw(block):
                    pieces.append(Drawn(markup, _for_phones(block)))
                elif block.instead:
                    pieces.append(Note(block.instead))
            case Replay():
                if (recording := block.record()) is not None:
                    pieces.append(Recorded(recording, block.of_cells))
            case Table(rows=()) | Cards(cards=()):
                pass
            case _:
                pieces.append(block)
    return tuple(pieces)


def _headings(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks, with a section for each table that has a title: it is then folded, and in the
    contents."""
    for block in blocks:
        if isinstance(block, Table) and block.title and block.rows:
            yield Section(block.title, (replace(block, title=""),))
        else:
            yield block


def _anchors(blocks: Iterable[Shown]) -> dict[int, str]:
    """A name for the heading of each chapter, and of each section outside of others, by identity:
    the words of its title, numbered where they are used already."""
    anchors: dict[int, str] = {}
    for block in _headed(blocks):
        word = _NO_WORD.sub("-", block.title.lower()).strip("-")
        used = sum(anchor == word or anchor.startswith(f"{word}--") for anchor in anchors.values())
        anchors[id(block)] = f"{word}--{used + 1}" if used else word
    return anchors


def _headed(blocks: Iterable[Shown]) -> Iterator[Section | Chapter]:
    for block in blocks:
        if isinstance(block, Section | Chapter):
            yield block
        if isinstance(block, Chapter):
            yield from _headed(block.blocks)


def _contents(blocks: Iterable[Shown], anchors: dict[int, str]) -> Iterator[tuple[str, str]]:
    """What the page is made of; the sections of a chapter are below its heading."""
    for block in blocks:
        if isinstance(block, Recorded):
            yield "replay-title", "Links in each cell" if block.of_cells else "Replay"
        elif isinstance(block, Section | Chapter):
            yield anchors[id(block)], block.title
