"""Markdown of drills, as a page of CI shows it: outcomes that differ have headings that differ."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rocelab.base.errors import ExpectationError, InputError, MachineError
from rocelab.base.interruption import Interrupted
from rocelab.report.drill import error_document, summary_document
from rocelab.report.renderers.markdown import markdown_of
from tests.helpers import phases_sample, report_sample


def heading(text: str) -> str:
    return text.splitlines()[0]


def tables(text: str) -> list[list[list[str]]]:
    """The cells of each table, row by row, as GitHub divides them."""
    matches = re.findall(r"(?:^\|.*\|\n)+", text, re.M)
    cells = [
        [re.split(r"(?<!\\)\|", line)[1:-1] for line in block.splitlines()] for block in matches
    ]
    return [[[cell.strip() for cell in row] for row in table] for table in cells]


def test_an_expectation_that_was_not_met_is_named_with_what_was_observed() -> None:
    text = markdown_of(summary_document(report_sample.result()))
    assert heading(text) == "### link-flap: failed"
    verdicts, repeats, figures = tables(text)
    assert verdicts[0] == ["expectation", "expected", "worst, lab", ""]
    assert ["Packets lost", "\\<= 50", "68", "not met in 3 of 3"] in verdicts
    assert ["Packets lost", "62", "59 to 68", "3"] in figures
    assert repeats[0][:2] == ["repeat", "outcome"]
    assert [row[:2] for row in repeats[2:]] == [[str(number), "failed"] for number in (1, 2, 3)]
    lost = repeats[0].index("Packets lost")
    assert sorted(row[lost] for row in repeats[2:]) == ["59", "62", "68"]


def test_a_drill_that_was_not_measured_says_so_and_why_and_has_no_figures() -> None:
    text = markdown_of(
        summary_document(report_sample.result(report_sample.repeat(1, ("the clock jumped",))))
    )
    assert heading(text) == "### link-flap: not measured"
    assert "- 1 of 1 repeat invalid: the clock jumped" in text.splitlines()
    assert len(tables(text)) == 1


def test_phases_are_a_column_of_their_own() -> None:
    text = markdown_of(summary_document(phases_sample.result()))
    for table in tables(text):
        assert table[0][0] == "phase"
        assert {row[0] for row in table[2:]} == {"idle", "shared"}


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (MachineError("FRR is missing", hint="make setup"), "this machine cannot run it"),
        (InputError("no such drill"), "the input is wrong"),
        (ExpectationError("it did not converge"), "failed"),
        (Interrupted(), "ended before it had a result"),
    ],
)
def test_a_drill_without_a_result_says_what_ended_it(error: BaseException, ended: str) -> None:
    text = markdown_of(error_document("link-flap", error))
    assert heading(text) == f"### link-flap: {ended}"
    # Within a fence nothing is Markdown.
    assert (str(error) or "Interrupted").splitlines()[0] in text.splitlines()


def test_nothing_that_a_user_wrote_is_markdown_or_html() -> None:
    hostile = "<img src=x> | [a](b) `c` \x1b[31m\n# d"
    text = markdown_of(summary_document(replace(report_sample.result(), title=hostile)))
    line = text.splitlines()[2]
    assert line.startswith(r"\<img src=x\> \| \[a\](b) \`c\` \\x1b\[31m \# d. Lab")
