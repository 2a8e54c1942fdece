"""The content of every rendering of a `DrillResult`, phase by phase, as rows of text.

The terminal and the page lay out the same rows in their own ways. Nothing is measured here.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.report.repeats import RepeatTable
from rocelab.results.drill import DrillResult, FigureSummary, PhaseRun
from rocelab.results.health import HealthReport
from rocelab.results.kpis import KPIS, format_kpi, kpis_of


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A KPI over the valid runs: median and, from two runs on, its spread. `n` of the `valid` runs
    measured it."""

    name: str
    title: str
    meaning: str
    value: str
    range: str
    cov: str
    n: int
    valid: int

    @property
    def counted(self) -> str:
        """`3`, or `2 of 3` if a valid run did not measure it."""
        return str(self.n) if self.n == self.valid else f"{self.n} of {self.valid}"


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """An expectation and its outcome; `phase` is empty if the drill has only one."""

    phase: str
    kpi: str
    title: str
    expected: str
    observed: str
    passed: bool
    said: str


def figure_rows(
    summary: FigureSummary, valid_runs: int, resolution_ns: float = 0.0
) -> list[FigureRow]:
    """The KPIs that apply, measured or not, in the order in which they are defined. A time not
    above `resolution_ns` is shown as below it."""
    rows = []
    for kpi in kpis_of((*summary.spread, *summary.truths, *summary.unmeasured)):
        value, extremes, cov, n = "", "", "", valid_runs
        spread = summary.spread.get(kpi.name)
        if kpi.name in summary.truths:
            true = summary.truths[kpi.name]
            value = "yes" if true == n else f"in {true} of {n}"
        elif spread is not None:
            n = spread.n
            value = format_kpi(kpi.name, spread.median, resolution_ns)
            if n > 1:
                ends = (spread.minimum, spread.maximum)
                low, high = (format_kpi(kpi.name, x, resolution_ns) for x in ends)
                extremes = low if low == high else f"{low} to {high}"
                cov = "" if spread.cov is None else f"{spread.cov:.0%}"
        elif kpi.name in summary.unmeasured:
            value, n = format_kpi(kpi.name, None), 0
        if value:
            row = FigureRow(kpi.name, kpi.title, kpi.meaning, value, extremes, cov, n, valid_runs)
            rows.append(row)
    return rows


def verdict_rows(result: DrillResult, repeats: Sequence[RepeatTable]) -> list[VerdictRow]:
    """Every expectation of every phase; `repeats` has an entry per phase."""
    return [
        VerdictRow(
            of_phase.phase,
            verdict.kpi,
            KPIS[verdict.kpi].title,
            verdict.expectation,
            verdict.shown(),
            verdict.passed,
            of_phase.verdict(verdict),
        )
        for phase, of_phase in zip(result.phases, repeats, strict=True)
        for verdict in phase.verdicts
    ]


def representative(result: DrillResult, phase: str) -> tuple[int, PhaseRun] | None:
    """The run shown in a phase's plots, and its repeat's number from 1: the valid one nearest the
    median of full convergence, of the time to fair shares, or of the iterations; else the first."""
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
    iterations = [
        iteration.modelled_ns for report in run.reports for iteration in report.iterations
    ]
    return statistics.median(iterations) if iterations else None


@dataclass(frozen=True, slots=True)
class HealthRow:
    """An SLI in text."""

    title: str
    objective: str
    worst: str
    where: str
    breaches: str
    met: bool


def health_rows(report: HealthReport) -> list[HealthRow]:
    """A row per SLI, in the order they are defined."""
    return [
        HealthRow(
            title=sli.sli.replace("_", " "),
            objective="-" if sli.objective is None else f"<= {_sli_text(sli.objective, sli.unit)}",
            worst=_sli_text(sli.worst, sli.unit),
            where=sli.worst_where or "-",
            breaches=str(sli.breached_samples),
            met=sli.met,
        )
        for sli in report.slis
    ]


def _sli_text(value: float, unit: str) -> str:
    """`68 packets`, `0.008 % of the buffer`."""
    if not unit.startswith("of "):
        return f"{value:,.0f} {unit}"
    percent = 100 * value
    return f"{'< 0.1' if 0 < percent < 0.1 else f'{percent:.3g}'} % {unit}"
