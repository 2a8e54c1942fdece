"""Writes a drill's outcome as Markdown, which CI servers show on the page of a job.

The rows are those of the terminal: the expectations first, then why repeats do not count, then
each repeat, then the figures. A drill that was not measured, a machine that cannot run it and a
fabric that failed have headings of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rocelab.base.errors import InputError, MachineError, RocelabError
from rocelab.base.wording import visible
from rocelab.report.repeats import RepeatTable, repeat_tables
from rocelab.report.view import figure_rows, verdict_rows
from rocelab.results.drill import DrillResult

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&])")


def markdown_of(result: DrillResult) -> str:
    """The document of a drill that ran."""
    return "\n".join(_lines(result)) + "\n"


def markdown_of_error(name: str, error: BaseException) -> str:
    """The document of a drill called `name` that has no result because of `error`."""
    message = str(error) or type(error).__name__
    block = [f"    {line}" for line in visible(message).splitlines()]
    return "\n".join((f"### {_text(name)}: {_what_ended_it(error)}", "", *block)) + "\n"


def _what_ended_it(error: BaseException) -> str:
    if isinstance(error, MachineError):
        return "this machine cannot run it"
    if isinstance(error, InputError):
        return "the input is wrong"
    return "failed" if isinstance(error, RocelabError) else "ended before it had a result"


def _lines(result: DrillResult) -> Iterator[str]:
    repeats = repeat_tables(result)
    environment = result.environment
    yield from (f"### {_text(result.name)}: {result.outcome}", "")
    yield _text(
        f"{result.title}. Lab {result.lab['name']}, {repeats[0].summary}, "
        f"{environment.routing_text}, kernel {environment.kernel}."
    )
    verdicts = verdict_rows(result, repeats)
    if verdicts:
        rows = ((row.phase, row.title, row.expected, row.observed, row.said) for row in verdicts)
        yield from _table(("phase", "expectation", "expected", "observed", ""), rows)
    reasons = [line for of_phase in repeats for line in of_phase.lines]
    if reasons:
        yield from ("", *(f"- {_text(line)}" for line in reasons))
    for of_phase in repeats:
        if len(of_phase.rows) > 1:
            where = f" of phase {_text(of_phase.phase)}" if of_phase.phase else ""
            yield from ("", f"<details><summary>Repeats{where}</summary>")
            lines = ((str(row.number), row.outcome, *row.figures) for row in of_phase.rows)
            yield from _table(("repeat", "outcome", *of_phase.columns), lines)
            yield from ("", "</details>")
    figures = list(_figures(result, repeats))
    if figures:
        yield from ("", "<details><summary>Figures</summary>")
        yield from _table(("phase", "figure", "median", "min to max", "repeats"), figures)
        yield from ("", "</details>")


def _figures(result: DrillResult, repeats: Sequence[RepeatTable]) -> Iterator[tuple[str, ...]]:
    for phase, of_phase in zip(result.phases, repeats, strict=True):
        resolution_ns = max(
            (run.resolution_ns for run in result.runs_of(phase.name) if run.valid), default=0.0
        )
        for number, summary in enumerate(phase.figures, 1):
            job = f", job {number}" if len(phase.figures) > 1 else ""
            for row in figure_rows(summary, phase.valid_runs, resolution_ns):
                yield f"{of_phase.phase}{job}", row.title, row.value, row.range, row.counted


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table, behind an empty line, less the first column if it is empty."""
    cells = [head, *rows]
    first = 0 if any(row[0] for row in cells[1:]) else 1
    yield ""
    for number, row in enumerate(cells):
        yield f"| {' | '.join(_text(cell) for cell in row[first:])} |"
        if number == 0:
            yield "|" + "---|" * len(row[first:])


def _text(text: str) -> str:
    """Text on one line in which nothing is Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))
