"""What a run of programs in a drill hears, and what makes it no measurement."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from rocelab.programs.running import OutputLine
from rocelab.results.programs import ProgramReport, TcpConnection
from rocelab.runs.programs import MOST_APART_NS, Metric, _Listener, unsound

MS = 10**6
CONNECTION = TcpConnection("srv1-1:1", 40_000, "srv2-1:1", 7000, 0, 10**9, 1000, 0, 300, 20, ())
REPORT = ProgramReport(
    schema_version=1,
    lab="zone-small",
    dilation=5000,
    command=("x",),
    ranks=(),
    began_ns=0,
    lasted_ns=10**9,
    connections=(CONNECTION,),
    delivered=((0, 0),),
    stall_bin_ns=100 * MS,
    longest_interval_ns=60 * MS,
    cpu_share=0.4,
    warnings=(),
)


def heard(*lines: str, pattern: str = "took (\\S+)?", rank: int | None = 0) -> _Listener:
    """What is heard of rank 0, a line each 10 ms from 10 ms on."""
    listener = _Listener([Metric("step", re.compile(pattern), "s", rank)], re.compile("ready"))
    for number, text in enumerate(lines, 1):
        listener.hear(OutputLine(0, "stdout", f"{text}\n".encode(), number * 10 * MS))
    return listener


def test_a_metric_is_what_lines_of_its_rank_say() -> None:
    lines = ("took 7", "is ready", "took 1.5", "ready again", "took 2e0")
    (series,) = heard(*lines).series(20 * MS)
    assert series.points == ((-10 * MS, 7), (10 * MS, 1.5), (30 * MS, 2))
    assert heard(*lines).ready_ns == 20 * MS
    assert heard(*lines, rank=1).series(0)[0].points == ()
    assert heard(*lines, rank=None).series(0) == heard(*lines).series(0)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "12ms", "1.2.3", ""])
def test_a_metric_without_a_number_is_no_measurement(text: str) -> None:
    listener = heard("took 1", f"took {text}", "took never", "took 3")
    assert [value for _, value in listener.points["step"]] == [1, 3]
    (problem,) = unsound(REPORT, listener.no_numbers, clock_was_set=False)
    assert problem == f"not valid because programs printed {text!r} as a value of metric step"


@pytest.mark.parametrize(
    ("changes", "clock_was_set", "problems"),
    [
        ({}, False, 0),
        ({"longest_interval_ns": MOST_APART_NS}, False, 0),
        ({"longest_interval_ns": MOST_APART_NS + 1}, False, 1),
        ({"longest_interval_ns": MOST_APART_NS + 1, "connections": ()}, False, 0),
        ({}, True, 1),
    ],
)
def test_a_run_that_was_not_seen_well_is_no_measurement(
    changes: dict[str, Any], clock_was_set: bool, problems: int
) -> None:
    reasons = list(unsound(replace(REPORT, **changes), {}, clock_was_set=clock_was_set))
    assert len(reasons) == problems
