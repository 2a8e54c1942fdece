"""What is in a document: its tables, and the text of their cells."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator

from rich.console import Console

from rocelab.report.document import Block, Chapter, Document, Section, Table, text_of
from rocelab.report.renderers.terminal import print_document


def tables(document: Document) -> Iterator[Table]:
    """Every table, in order."""
    return _tables((*document.answer, *document.blocks))


def _tables(blocks: Iterable[Block]) -> Iterator[Table]:
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, Section | Chapter):
            yield from _tables(block.blocks)


def with_columns(document: Document, *titles: str) -> list[dict[str, str]]:
    """The rows of every table that has these columns: the texts by the titles of the columns."""
    return [
        {
            column.title: text_of(cell, column)
            for cell, column in zip(row, table.columns, strict=True)
        }
        for table in tables(document)
        if set(titles) <= {column.title for column in table.columns}
        for row in table.rows
    ]


def printed(document: Document, width: int = 160) -> str:
    """A document as a terminal of `width` columns shows it."""
    text = io.StringIO()
    print_document(document, Console(file=text, width=width))
    return text.getvalue()
