"""A document as Markdown, which CI servers show on the page of a job.

It has the answer and all sections; those that are `folded` open on a click.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

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
    narrowed,
    plain,
    text_of,
)

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")
_TICKS = re.compile("`+")


def markdown_of(document: Document) -> str:
    """The document as text."""
    verdict = f": {document.verdict.text}" if document.verdict is not None else ""
    lines = [f"### {_text(document.name or document.title)}{_text(verdict)}"]
    about = ". ".join(filter(None, (document.title if document.name else "", document.meta)))
    if about:
        lines += ["", _text(f"{about}.")]
    for block in (*document.answer, *document.blocks):
        lines += _lines(block)
    return "\n".join(lines) + "\n"


def _lines(block: Block) -> Iterator[str]:
    if getattr(block, "page_only", False):
        return
    match block:
        case Section() | Chapter():
            inner = [line for part in block.blocks for line in _lines(part)]
            if inner and isinstance(block, Section) and block.folded:
                yield from ("", f"<details><summary>{_text(block.title)}</summary>", *inner)
                yield from ("", "</details>")
            elif inner:
                yield from ("", f"**{_text(block.title)}**", *inner)
        case Table() if block.rows:
            yield from _table(narrowed(block))
        case Note():
            yield from ("", _text(plain(block.text)))
        case Items():
            yield from ("", *(f"- {_text(plain(text))}" for text in block.texts))
        case Code():
            yield from ("", *_fenced(visible(block.text)))


def _fenced(text: str) -> Iterator[str]:
    """Text as it is, also behind a list, of which indented text would be a part."""
    fence = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
    yield from (fence, *text.splitlines(), fence)


def _table(table: Table) -> Iterator[str]:
    yield from (("", f"**{_text(table.title)}**", "") if table.title else ("",))
    yield _row(column.title for column in table.columns)
    yield f"|{'---|' * len(table.columns)}"
    for row in (*table.rows, *((table.foot,) if table.foot else ())):
        yield _row(text_of(cell, column) for cell, column in zip(row, table.columns, strict=True))
    if table.caption:
        yield from ("", _text(table.caption))


def _row(texts: Iterable[str]) -> str:
    return f"| {' | '.join(map(_text, texts))} |"


def _text(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))
