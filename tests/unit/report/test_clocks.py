"""Every table of a page of a lab with a time or a rate of a job says by which clock it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest

from rocelab.report.document import Block, Chapter, Section, Table, text_of
from tests.helpers.page_samples import KINDS

TIMED = re.compile(r"\d (ns|us|ms|s|GB/s)\b")
CLOCK = re.compile(r"\b(lab|modelled)\b")


def titled_tables(blocks: Iterable[Block], title: str = "") -> Iterator[tuple[str, Table]]:
    """The tables of blocks, with the titles that they are under."""
    for block in blocks:
        if isinstance(block, Section | Chapter):
            yield from titled_tables(block.blocks, f"{title} {block.title}")
        elif isinstance(block, Table):
            yield title, block


@pytest.mark.parametrize("kind", ["drill", "storm", "phases", "job", "comparison", "difference"])
def test_a_table_with_times_names_their_clock(kind: str) -> None:
    document = KINDS[kind]()
    timed = [
        (f"{title} {table.title}", table)
        for title, table in titled_tables((*document.answer, *document.blocks))
        if any(
            TIMED.search(text_of(cell, column))
            for row in table.rows
            for cell, column in zip(row, table.columns, strict=True)
        )
    ]
    assert timed
    unnamed = [
        (title, [column.title for column in table.columns])
        for title, table in timed
        if not CLOCK.search(" ".join([title, table.caption, *(c.title for c in table.columns)]))
    ]
    assert unnamed == []
