"""Tables on a narrow terminal: every name and figure stays whole, and every row keeps its name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rocelab.base.quantities import Unit
from rocelab.drills.plan import planned_drill
from rocelab.drills.view import view_document
from rocelab.labfile.catalog import DRILLS, find, shipped_names
from rocelab.report.document import Column, Table, columns
from rocelab.report.drill import drill_document
from rocelab.report.renderers.terminal import print_blocks, print_document
from rocelab.report.tables import Wanted, fitted
from tests.helpers import phases_sample, report_sample
from tests.helpers.narrow import broken, printed, too_long, words

NARROW = (80, 60)


def show_links(console: Console) -> None:
    table = Table(
        "Links",
        (
            *columns(Unit.TEXT, "link", "what happened"),
            Column("packets", Unit.COUNT),
            Column("loss of connectivity", Unit.NS),
        ),
        (
            ("rtsw101:ctsw12-2", "carrier went and came back", 1_234_567, 12.5e6),
            ("z2-rtsw17:atsw1", "nothing", 12, "not measured"),
        ),
        caption="and 12 more",
    )
    print_blocks([table], console)


def test_a_table_that_fits_stands_as_it_is() -> None:
    text = printed(show_links, 100)
    assert text.count("rtsw101:ctsw12-2") == 1
    assert "carrier went and came back" in text
    assert text.split()[0] == "Links"
    assert text.rstrip().endswith("and 12 more")


def test_text_wraps_between_words_before_a_column_goes_below() -> None:
    text = printed(show_links, 66)
    assert text.count("rtsw101:ctsw12-2") == 1
    assert "carrier went and came back" not in text
    assert broken(show_links, 66) == set()


def test_columns_without_room_follow_below_beside_the_names_of_their_rows() -> None:
    text = printed(show_links, 40)
    assert text.count("rtsw101:ctsw12-2") > 1
    assert text.count("Links") == text.count("and 12 more") == 1
    lines = [line for line in text.splitlines() if "z2-rtsw17:atsw1" in line]
    assert any("not measured" in line for line in lines)


@pytest.mark.parametrize("width", [100, 80, 60, 40])
def test_names_are_whole_and_lines_fit(width: int) -> None:
    assert broken(show_links, width) == set()
    assert too_long(show_links, width) == []


def test_what_is_wider_than_the_terminal_is_folded_and_not_cut() -> None:
    def show(console: Console) -> None:
        head = (Column("name"), Column("n", Unit.COUNT))
        print_blocks([Table("", head, (("a" * 25 + "b" * 25, 1),))], console)

    text = printed(show, 30)
    assert (text.count("a"), text.count("b")) == (26, 25)
    assert too_long(show, 30) == []


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(0, 40)).map(
            lambda pair: Wanted(pair[0], sum(pair))
        ),
        min_size=1,
        max_size=14,
    ),
    st.integers(1, 3),
    st.integers(20, 160),
)
def test_every_column_stands_once_and_the_names_in_every_part(
    wanted: list[Wanted], names: int, room: int
) -> None:
    parts = fitted(wanted, names, room)
    every = range(len(wanted))
    assert all(part.columns[0] == 0 for part in parts)
    assert sorted({index for part in parts for index in part.columns}) == list(every)
    others = [index for part in parts for index in part.columns if index >= names]
    assert others == list(every[names:])
    for part in parts:
        widths = dict(zip(part.columns, part.widths, strict=True))
        assert all(widths[index] <= wanted[index].most for index in part.columns)
        if len(part.columns) > max(2, names):
            assert all(widths[index] >= wanted[index].least for index in part.columns)


@pytest.mark.parametrize("width", NARROW)
def test_the_reports_of_drills_keep_names_whole(width: int) -> None:
    faults, jobs = report_sample.result(), phases_sample.result(*[phases_sample.repeat()] * 2)
    assert broken(lambda console: print_document(drill_document(faults), console), width) == set()
    assert too_long(lambda console: print_document(drill_document(faults), console), width) == []
    assert broken(lambda console: print_document(drill_document(jobs), console), width) == set()
    assert too_long(lambda console: print_document(drill_document(jobs), console), width) == []


@pytest.mark.parametrize("name", shipped_names(DRILLS))
def test_what_a_drill_will_do_fits(name: str) -> None:
    view = planned_drill(find(name, DRILLS))

    def show(console: Console) -> None:
        print_document(view_document(view, console.width), console)

    whole = words(printed(show, 1000))
    for width in NARROW:
        text = printed(show, width)
        assert [line for line in text.splitlines() if len(line) > width] == []
        # Bars and the scale above them are as long as there is room for.
        lost = whole - words(text)
        assert {word for word in lost if not set(word) <= set("█·") and not word[0].isdigit()} <= {
            "ms",
            "s",
        }
