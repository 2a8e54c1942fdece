"""A document on a terminal; it is complete without colours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from rocelab.base.wording import visible
from rocelab.report.document import (
    Block,
    Chapter,
    Code,
    Document,
    Items,
    Note,
    Section,
    Table,
    Tone,
    narrowed,
    plain,
    text_of,
    tone_of,
)
from rocelab.report.tables import WholeTable

STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.BAD: "bold red",
    Tone.CAUTION: "yellow",
    Tone.STRONG: "bold",
    Tone.QUIET: "",
}
HEADING = "italic"

Printed = Text | WholeTable


def print_document(document: Document, console: Console) -> None:
    """Print a document, with its answer, the sentence of its card and the verdict at the end."""
    if document.title:
        console.print(_text(document.title, Tone.STRONG), soft_wrap=not console.is_terminal)
    if document.meta:
        console.print(_text(document.meta))
    print_blocks((*document.blocks, *document.answer), console)
    if document.card is not None and document.card.sentence:
        sentence = _text(document.card.sentence, Tone.STRONG)
        console.print(sentence, soft_wrap=not console.is_terminal)
    if document.verdict is not None:
        verdict = _text(f"{document.name}: {document.verdict.text}", document.verdict.tone)
        console.print(verdict, style="bold", soft_wrap=not console.is_terminal)


def print_blocks(blocks: Iterable[Block], console: Console) -> None:
    """Print blocks below each other; those with a heading behind an empty line. A terminal breaks
    sentences between words; in a file or a pipe each is one line."""
    for part in _printed(blocks):
        is_line = isinstance(part, Text) and part.style != HEADING
        console.print(part, soft_wrap=is_line and not console.is_terminal)


def rich_table(table: Table) -> WholeTable:
    """A table without its heading."""
    table = narrowed(table)
    made = WholeTable("", table.names)
    for column in table.columns:
        justify = "left" if column.is_text else "right"
        made.add_column(_text(column.title), justify=justify, no_wrap=column.unbroken)  # type: ignore[arg-type]
    made.show_header = any(column.title for column in table.columns)
    for number, row in enumerate((*table.rows, *((table.foot,) if table.foot else ()))):
        if number == len(table.rows):
            made.add_section()
        made.add_row(
            *(
                _text(text_of(cell, column), tone_of(cell))
                for cell, column in zip(row, table.columns, strict=True)
            )
        )
    made.caption = Text(visible(table.caption), "table.caption") if table.caption else None
    return made


def _printed(blocks: Iterable[Block], heading: str = "") -> Iterator[Printed]:
    """What is printed of blocks. The first is preceded by `heading`, but a table by its own."""
    for block in blocks:
        parts = list(_parts(block))
        if not parts:
            continue
        title = block.title if isinstance(block, Table) else ""
        if title or heading:
            yield Text(visible(f"\n{title or heading}"), HEADING)
            heading = ""
        yield from parts


def _parts(block: Block) -> Iterator[Printed]:
    if getattr(block, "page_only", False):
        return
    match block:
        case Section() | Chapter():
            yield from _printed(block.blocks, block.title)
        case Table() if block.rows:
            yield rich_table(block)
        case Note():
            yield _text(plain(block.text), block.tone)
        case Items():
            yield from (_text(f"- {plain(text)}") for text in block.texts)
        case Code():
            yield _text(block.text)


def _text(text: str, tone: Tone = Tone.PLAIN) -> Text:
    """Escaped before rich measures it, so that columns stay aligned."""
    return Text(visible(text), STYLES[tone])
