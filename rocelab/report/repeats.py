"""How each repeat of a drill went: valid or not, unmet expectations, and its figures.

It stands beside the medians, so that none hides a failed repeat. Nothing is measured here.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rocelab.base.quantities import Unit
from rocelab.base.wording import counted
from rocelab.report.document import Column, Table, Tone, Toned, columns
from rocelab.results.drill import DrillResult, PhaseRun, compared_figures
from rocelab.results.expectations import NOT_APPLICABLE, Verdict
from rocelab.results.kpi import Figures, Kpi
from rocelab.results.kpis import KPIS, format_kpi, program_figures

HEADLINES = (
    "full_convergence",
    "loss_of_connectivity",
    "affected_flows",
    "lost_packets",
    "busbw",
    "goodput",
    "jct_ratio",
)
"""KPIs that the table shows if measured, besides those that the drill expects."""


PREFIX = "not valid because "
MOST_REASONS = 2
"""Reasons in a line: the table of repeats has all."""

_DIGITS = re.compile(r"[\d.,]+")


class RepeatOutcome(StrEnum):
    """The outcome of a repeat."""

    PASSED = "passed"
    FAILED = "failed"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class RepeatRow:
    """A repeat, numbered from 1: its figures in the order of the table's columns, the KPIs that
    missed their expectation, and in words why it failed or is invalid."""

    number: int
    outcome: RepeatOutcome
    figures: tuple[str, ...]
    unmet: frozenset[str]
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RepeatTable:
    """All repeats of a phase; `phase` is empty if the drill has only one."""

    phase: str
    columns: tuple[str, ...]
    rows: tuple[RepeatRow, ...]

    @property
    def valid(self) -> int:
        return sum(row.outcome is not RepeatOutcome.INVALID for row in self.rows)

    @property
    def failed(self) -> int:
        return sum(row.outcome is RepeatOutcome.FAILED for row in self.rows)

    @property
    def summary(self) -> str:
        """`3 valid repeats`, `3 valid of 4 repeats, 1 of them failed`."""
        many = len(self.rows)
        text = counted(many, "valid repeat")
        if self.valid < many:
            text = f"{self.valid} valid of {counted(many, 'repeat')}"
        return text + (f", {self.failed} of them failed" if self.failed else "")

    def verdict(self, verdict: Verdict) -> str:
        """`met`, `not met`, with several valid repeats also in how many, or `not measured`."""
        if verdict.passed:
            return "met"
        if not self.valid:
            return "not measured"
        times = sum(verdict.kpi in row.unmet for row in self.rows)
        return f"not met in {times} of {self.valid}" if self.valid > 1 else "not met"

    @property
    def lines(self) -> list[str]:
        """`4 of 9 repeats invalid: the clock jumped (repeat 2); a sender stalled (repeats 5, 6)`,
        and the same of those that failed, if there are several."""
        failed = self._line(RepeatOutcome.FAILED, "failed") if len(self.rows) > 1 else ""
        return [line for line in (self.invalid_line, failed) if line]

    @property
    def invalid_line(self) -> str:
        """That of the repeats that do not count; empty if all do."""
        return self._line(RepeatOutcome.INVALID, "invalid")

    @property
    def first_reason(self) -> str:
        """Why the first of the repeats that do not count is invalid; empty if all do."""
        rows = (row for row in self.rows if row.outcome is RepeatOutcome.INVALID)
        return next((row.why[0].removeprefix(PREFIX) for row in rows), "")

    def _line(self, outcome: RepeatOutcome, word: str) -> str:
        rows = [row for row in self.rows if row.outcome is outcome]
        if not rows:
            return ""
        alike: dict[str, dict[str, list[str]]] = {}
        for row in rows:
            for reason in row.why:
                texts = alike.setdefault(_DIGITS.sub("", reason), {})
                texts.setdefault(reason.removeprefix(PREFIX), []).append(str(row.number))
        reasons = [
            next(iter(texts)) + (_where(texts) if len(self.rows) > 1 else "")
            for texts in alike.values()
        ]
        more = len(reasons) - MOST_REASONS
        text = "; ".join(reasons[:MOST_REASONS]) + (f"; and {more} more" if more > 0 else "")
        where = f" of phase {self.phase}" if self.phase else ""
        return f"{len(rows)} of {counted(len(self.rows), 'repeat')}{where} {word}: {text}"


def _where(texts: Mapping[str, Sequence[str]]) -> str:
    """` (repeats 2, 5)`, the repeats with a reason; ` (repeat 2, alike in 5)` if figures differ."""
    first, *others = texts.values()
    where = f"{'repeat' if len(first) == 1 else 'repeats'} {', '.join(first)}"
    more = ", ".join(number for numbers in others for number in numbers)
    return f" ({where}, alike in {more})" if more else f" ({where})"


def repeat_tables(result: DrillResult) -> list[RepeatTable]:
    """The repeats of each phase."""
    return [_phase_table(result, phase.name, phase.verdicts) for phase in result.phases]


def _phase_table(result: DrillResult, phase: str, verdicts: Sequence[Verdict]) -> RepeatTable:
    held = [compared_figures(repeat, phase).figures for repeat in result.repeats]
    kpis = _shown(verdicts, [figure for figures in held for figure in figures])
    rows = []
    for number, (repeat, figures) in enumerate(zip(result.repeats, held, strict=True), 1):
        run = next(run for run in repeat if run.phase == phase)
        misses = result.unmet_by(repeat, phase)
        rows.append(_row(number, run.problems, misses, figures, kpis, run.resolution_ns))
    return RepeatTable(result.where(phase), tuple(kpi.title for kpi in kpis), tuple(rows))


def _shown(verdicts: Iterable[Verdict], figures: Sequence[Figures]) -> list[Kpi]:
    measured = [kpi for kpi in HEADLINES if any(figure.get(kpi) is not None for figure in figures)]
    stated = (verdict.kpi for verdict in verdicts if verdict.kpi in KPIS)
    return [KPIS[kpi] for kpi in dict.fromkeys((*measured, *stated))]


def _row(
    number: int,
    problems: tuple[str, ...],
    misses: Sequence[Verdict],
    figures: Sequence[Figures],
    kpis: Iterable[Kpi],
    resolution_ns: float,
) -> RepeatRow:
    judged = RepeatOutcome.FAILED if misses else RepeatOutcome.PASSED
    outcome = RepeatOutcome.INVALID if problems else judged
    cells = tuple("-" if problems else _cell(kpi, figures, resolution_ns) for kpi in kpis)
    unmet = frozenset(verdict.kpi for verdict in misses)
    why = problems or tuple(_missed(verdict, resolution_ns) for verdict in misses)
    return RepeatRow(number, outcome, cells, unmet, why)


def _cell(kpi: Kpi, figures: Sequence[Figures], resolution_ns: float) -> str:
    """One figure, or one of each job if they differ."""
    cells = [
        format_kpi(kpi.name, figure[kpi.name], resolution_ns)
        if kpi.name in figure
        else NOT_APPLICABLE
        for figure in figures
    ]
    return ", ".join(dict.fromkeys(cells))


def _missed(verdict: Verdict, resolution_ns: float) -> str:
    observed = verdict.shown(resolution_ns)
    return f"{KPIS[verdict.kpi].title} {observed}, expected {verdict.expectation}"


def repeats_table(repeats: RepeatTable, clock: str) -> Table:
    """A row for each repeat; times are of that clock."""
    tones = {
        RepeatOutcome.PASSED: Tone.GOOD,
        RepeatOutcome.FAILED: Tone.BAD,
        RepeatOutcome.INVALID: Tone.BAD,
    }
    return Table(
        "",
        (
            Column("repeat", Unit.NUMBER),
            Column("outcome"),
            *columns(Unit.FIGURE, *repeats.columns),
            Column("why", page_only=True),
        ),
        tuple(
            (row.number, Toned(row.outcome, tones[row.outcome]), *row.figures, "; ".join(row.why))
            for row in repeats.rows
        ),
        names=2,
        caption=f"Times: {clock}.",
    )


def representative(result: DrillResult, phase: str) -> tuple[int, PhaseRun] | None:
    """The run shown in a phase's plots, and its repeat's number from 1: the valid one nearest the
    median of full convergence, of the time to fair shares, of the iterations, of the first metric
    of programs, or of their longest stall; else the first."""
    valid = [(n, run) for n, run in enumerate(result.runs_of(phase), 1) if run.valid]
    timed = [(n, run, _time_of(run)) for n, run in valid]
    known = [(n, run, time) for n, run, time in timed if time is not None]
    if not known:
        return valid[0] if valid else None
    middle = statistics.median(time for _, _, time in known)
    n, run, _ = min(known, key=lambda candidate: abs(candidate[2] - middle))
    return n, run


def _time_of(run: PhaseRun) -> float | None:
    if run.probes is not None:
        return run.probes.overall.full_convergence_ns
    if run.fair_shares is not None:
        return run.fair_shares.lab_ns
    if run.programs is not None:
        figures = program_figures(run.programs)
        time = figures.get("metric_median", figures["longest_stall"])
        return float(time) if isinstance(time, int | float) else None
    iterations = [
        iteration.modelled_ns for report in run.reports for iteration in report.iterations
    ]
    return statistics.median(iterations) if iterations else None
