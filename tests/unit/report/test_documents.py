"""A document in each medium: what is there, what only a page has, and that nothing is markup."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt
from matplotlib.figure import Figure as Drawing

from rocelab.base.quantities import Unit
from rocelab.report.document import (
    Answer,
    Card,
    Cards,
    Chapter,
    Code,
    Column,
    Document,
    Figure,
    Hyperlink,
    Items,
    Note,
    Section,
    Table,
    Tone,
    Toned,
    Value,
    columns,
    without_zeros,
)
from rocelab.report.renderers.markdown import markdown_of
from rocelab.report.renderers.page import html
from tests.helpers.cells import plain_cells
from tests.helpers.documents import printed

LINKS = Table(
    "Links",
    (
        Column("link"),
        Column("packets", Unit.COUNT),
        Column("outage", Unit.NS),
        Column("what it is", page_only=True),
        Column("verdict"),
    ),
    (
        ("rtsw1:ctsw1", 1_234_567, Value(5e6, Unit.NS, 21.8e6), "a <cable>", "met"),
        ("rtsw1:ctsw2", 12, None, "another", Toned("not met", Tone.BAD)),
    ),
    caption="and 12 more",
    foot=("all", 1_234_579, "", "", ""),
)
Render = Callable[[Document], str]
DOCUMENT = Document(
    "Two <cables>",
    (
        Chapter("Phase idle", (Section("Loads", (LINKS,)),)),
        Section("Explained", (Note("only a page has room"),), page_only=True),
        Section("Nothing", (Table("", (Column("a"),), ()), Figure("none", lambda: None))),
        Section("Looked up", (Items(("first", "second")),), folded=True),
        Section("Drawn", (Figure("line", Drawing),)),
        Code("rocelab drill run", title="how"),
    ),
    name="link-flap",
    verdict=Toned("failed", Tone.BAD),
    kind="rocelab drill `link-flap`",
    meta="lab zone-small",
    answer=(
        Note(("Two flows out: see ", Hyperlink("evidence", "evidence/1/"))),
        Cards((Card("Packets lost", "62"),)),
    ),
)


class Outline(HTMLParser):
    """Elements that stay open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("render", [printed, html, markdown_of])
def test_every_medium_has_the_figures_the_answer_and_the_verdict(render: Render) -> None:
    text = render(DOCUMENT)
    for words in ("1,234,567", "21.8 ms", "not met", "Phase idle", "Two flows out", "failed"):
        assert words in text
    assert "Nothing" not in text


@pytest.mark.parametrize("render", [printed, markdown_of])
def test_explanations_figures_and_cards_are_for_pages(render: Render) -> None:
    text = render(DOCUMENT)
    for words in ("what it is", "another", "Explained", "Drawn", "Packets lost"):
        assert words not in text
        assert words in html(DOCUMENT)


def test_a_terminal_ends_with_the_answer_and_a_page_begins_with_it() -> None:
    text = printed(DOCUMENT)
    assert text.index("Links") < text.index("1,234,567") < text.index("Two flows out")
    assert text.rstrip().endswith("link-flap: failed")
    page = html(DOCUMENT)
    assert page.index("Two flows out") < page.index("1,234,567")


def test_a_page_is_well_formed_links_its_sections_and_escapes_text() -> None:
    outline = Outline()
    page = html(DOCUMENT)
    outline.feed(page)
    assert outline.open == []
    assert "<cable>" not in page
    assert '<a href="evidence/1/">evidence</a>' in page
    assert "<code>link-flap</code>" in page
    assert '<td class="bad">not met</td>' in plain_cells(page)
    for anchor, is_listed in (("phase-idle", True), ("loads", False), ("explained", True)):
        assert (f'<a href="#{anchor}">' in page) is is_listed  # not what is inside of a phase
        assert f'<h2 id="{anchor}">' in page
    assert html(DOCUMENT) == page


def test_sections_of_one_title_have_anchors_that_differ() -> None:
    phases = tuple(
        Chapter(name, (Section("Events", (Note("here"),)),)) for name in ("one", "two", "three")
    )
    page = html(Document("Phases", phases))
    assert [page.count(f'id="{anchor}"') for anchor in ("events", "events--2", "events--3")] == [
        1,
        1,
        1,
    ]


def test_what_a_medium_folds_is_a_detail_in_markdown() -> None:
    text = markdown_of(DOCUMENT)
    assert "<details><summary>Looked up</summary>\n\n- first\n- second\n\n</details>" in text
    assert text.startswith("### link-flap: failed\n\nTwo \\<cables\\>. lab zone-small.\n")


HOSTILE = "\x1b[31m\u202e<script>alert(1)</script>[red]*x*|y[/red]"


def hostile_document() -> Document:
    """A document with what a user may have written in every text."""
    table = Table(
        HOSTILE,
        (Column(HOSTILE), Column(HOSTILE)),
        ((HOSTILE, Toned(HOSTILE, Tone.BAD)), (Hyperlink(HOSTILE, f'"{HOSTILE}'), None)),
        caption=HOSTILE,
        foot=(HOSTILE, HOSTILE),
    )
    code = Code(f"{HOSTILE}\n```\n{HOSTILE}", HOSTILE, HOSTILE)
    blocks = (
        Chapter(HOSTILE, (Section(HOSTILE, (table,)),)),
        Section(HOSTILE, (Items((HOSTILE,)), code), folded=True),
        Note(HOSTILE),
        Cards((Card(HOSTILE, HOSTILE, HOSTILE, HOSTILE),)),
    )
    verdict = Toned(HOSTILE, Tone.BAD)
    card = Answer(HOSTILE, (Card(HOSTILE, HOSTILE, HOSTILE, HOSTILE),))
    return Document(
        HOSTILE, blocks, HOSTILE, verdict, HOSTILE, HOSTILE, HOSTILE, card, (Note(HOSTILE),)
    )


def page_of_markdown(document: Document) -> str:
    page: str = MarkdownIt("gfm-like", {"linkify": False}).render(markdown_of(document))
    return page


@pytest.mark.parametrize("render", [html, page_of_markdown])
def test_no_text_is_markup_on_a_page(render: Render) -> None:
    page = render(hostile_document())
    assert "<script>alert" not in page
    assert "<em>x</em>" not in page


@pytest.mark.parametrize("render", [printed, markdown_of])
def test_no_text_has_control_characters_or_is_markup_of_a_terminal(render: Render) -> None:
    text = render(hostile_document())
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "red" in text


def test_columns_that_are_0_in_every_row_are_named_below_the_table() -> None:
    head = (Column("job"), *columns(Unit.SECONDS, "stalled", "slowed"), Column("lost", Unit.COUNT))
    table = without_zeros(
        Table("", head, (("a", 0.0, 2.0, 0), ("b", 0.0, 0.0, 0)), foot=("", 0, 2, 0))
    )
    assert [column.title for column in table.columns] == ["job", "slowed"]
    assert table.rows == (("a", 2.0), ("b", 0.0))
    assert table.foot == ("", 2)
    assert table.caption == "0 in every row: stalled, lost"
    assert without_zeros(table) is table
    empty = Table("", head, ())
    assert without_zeros(empty) is empty
