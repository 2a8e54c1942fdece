"""What a drill found: of probes the worst event and where its time went, of jobs how the phases
differ; and which expectations were missed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from rocelab.base.quantities import Unit, change, duration
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import and_more, sentence
from rocelab.report.answers.compared import (
    ComparedFigure,
    compared_bars,
    compared_cards,
    side_by_side,
)
from rocelab.report.answers.events import (
    back_clause,
    hold_clause,
    is_storm,
    outage_clause,
    worst_event,
)
from rocelab.report.answers.job import held_back_clause
from rocelab.report.answers.plots import probes_plot
from rocelab.report.answers.programs import metric_clause, stall_clause
from rocelab.report.document import MOST_FIGURES, Answer, Card, Figure
from rocelab.report.figures import FigureRow, figure_rows
from rocelab.report.jobs.plots import fair_shares_plot, progress_plot
from rocelab.report.jobs.text import job_name
from rocelab.report.programs import NO_COURSE, programs_plot
from rocelab.report.repeats import RepeatTable, representative
from rocelab.results.drill import DrillResult, FigureSummary, PhaseRun, PhaseSummary
from rocelab.results.job import JobReport
from rocelab.results.kpi import UNITS, Better
from rocelab.results.kpis import KPIS, format_kpi

OF_PROBES = (
    "full_convergence",
    "loss_of_connectivity",
    "affected_flows",
    "lost_packets",
    "uplink_mmr",
)
OF_JOBS = (
    "ttft_p50",
    "ttft_p99",
    "itl_p99",
    "request_goodput",
    "slowdown_p99",
    "busbw",
    "goodput",
    "time_to_fairness",
    "model_time_to_fairness",
    "jct_overhead",
    "jct_ratio",
    "iteration_time",
    "queue_max",
    "retransmitted_packets",
    "switch_marks",
)
"""The KPIs that a card has, in this order."""

OF_PROGRAMS = (
    "metric_max",
    "metric_median",
    "longest_stall",
    "stalled_connections",
    "failed_programs",
    "tcp_goodput",
)

COMPARED = (
    *("ttft_p99", "slowdown_p99", "step_time_max"),
    *("busbw", "goodput", "iteration_time"),
)
"""Phases are compared by the first of these that two of them have."""

_ALIKE = 0.01
"""Phases that differ by less are alike."""


@dataclass(frozen=True, slots=True)
class _MeasuredPhase:
    """A phase of probes, or a job of a phase of jobs, with a valid run, and the run that stands for
    it."""

    summary: PhaseSummary
    run: PhaseRun
    where: str
    """The name of the phase; empty if the drill has no other."""

    resolution_ns: float
    job: int = 0
    """Its place among the jobs of the phase."""

    @property
    def name(self) -> str:
        """`shared, job 2`; empty if the drill has no other."""
        return self.label if self.where or len(self.summary.figures) > 1 else ""

    @property
    def label(self) -> str:
        """`shared`, `shared, job 2`; of the jobs of an only phase `job 2`."""
        jobs = len(self.summary.figures)
        name = job_name(self.where or self.summary.name, self.job + 1, jobs)
        return name if self.where or jobs == 1 else f"job {self.job + 1}"

    @property
    def place(self) -> str:
        """`phase shared, job 2`; of the jobs of an only phase `job 2`."""
        return f"phase {self.label}" if self.where else self.label

    @property
    def figures(self) -> FigureSummary:
        return self.summary.figures[self.job]

    @property
    def report(self) -> JobReport:
        return self.run.reports[self.job]

    @property
    def pattern(self) -> str:
        """The pattern of its job."""
        return self.report.title

    @property
    def lost(self) -> int:
        return 0 if self.run.probes is None else self.run.probes.overall.lost


def drill_answer(result: DrillResult, repeats: Sequence[RepeatTable]) -> Answer:
    """The answer of a drill; without a valid repeat only that nothing was measured."""
    phases = list(_phases(result))
    if not phases:
        return Answer(f"Nothing was measured: {_invalid(repeats)}.")
    probed = [phase for phase in phases if phase.run.probes is not None]
    programs = [phase for phase in phases if phase.run.programs is not None]
    clauses: list[str] = []
    if programs:
        worst = max(programs, key=lambda phase: _median(phase, "longest_stall") or 0.0)
        clauses += _programs(worst)
    elif probed:
        worst = max(probed, key=lambda phase: phase.lost)
        clauses += _probes(worst)
    else:
        worst = _most_different(phases)
        clauses += _jobs(phases, worst)
    text = sentence(*clauses, _missed(result))
    kpi = None if probed or programs else _common(phases)
    if kpi is None:
        return Answer(text, _figures(worst, repeats), _plot(worst))
    phases_of = _side_by_side(phases, kpi)
    title = KPIS[kpi].title
    cards = tuple(compared_cards(phases_of, title, _missed_by_phase(result, kpi)))
    if worst.run.fair_shares is not None:
        return Answer(text, cards, _plot(worst))
    what = "job" if any(phase.job for phase in phases) else "phase"
    axis = f"{title.lower()}, median of each {what}"
    return Answer(text, cards, Figure("answer", partial(compared_bars, phases_of, axis)))


def _side_by_side(phases: Sequence[_MeasuredPhase], kpi: str) -> tuple[ComparedFigure, ...]:
    """The phases that have the KPI; jobs are compared with those of the same pattern."""
    spreads = [
        (phase.label, spread)
        for phase in phases
        if (spread := phase.figures.spread.get(kpi)) is not None
    ]
    patterns = {phase.label: phase.pattern for phase in phases}
    return side_by_side(spreads, Unit(UNITS[KPIS[kpi].quantity]), patterns)


def _missed_by_phase(result: DrillResult, kpi: str) -> dict[str, str]:
    return {
        phase.name: f"expectation {verdict.expectation} not met"
        for phase in result.phases
        for verdict in phase.verdicts
        if verdict.kpi == kpi and not verdict.passed and verdict.observed is not None
    }


def _phases(result: DrillResult) -> Iterator[_MeasuredPhase]:
    for phase in result.phases:
        chosen = representative(result, phase.name)
        if chosen is not None:
            where, resolution_ns = result.where(phase.name), result.resolution_of(phase.name)
            for job in range(len(phase.figures)):
                yield _MeasuredPhase(phase, chosen[1], where, resolution_ns, job)


def _invalid(repeats: Sequence[RepeatTable]) -> str:
    table = repeats[0]
    many = len(table.rows)
    text = "the repeat is not valid" if many == 1 else f"none of {many} repeats is valid"
    return f"{text} ({table.first_reason})"


def _probes(phase: _MeasuredPhase) -> Iterator[str]:
    assert phase.run.probes is not None
    run = phase.run.probes
    where = f"phase {phase.name}, " if phase.name else ""
    worst = worst_event(run)
    if worst is None:
        lost = counted(run.overall.lost, "packet") if run.overall.lost else "no packet"
        yield f"{where}{counted(len(run.flows), 'flow')} lost {lost}"
        return
    yield where + outage_clause(worst)
    yield hold_clause(worst)
    if is_storm(run):
        yield back_clause(run)


def _programs(phase: _MeasuredPhase) -> Iterator[str]:
    assert phase.run.programs is not None
    where = f"phase {phase.name}, " if phase.name else ""
    yield where + stall_clause(phase.run.programs)
    yield metric_clause(phase.run.programs)


def _jobs(phases: Sequence[_MeasuredPhase], worst: _MeasuredPhase) -> Iterator[str]:
    yield _difference(phases, worst) or _reached(worst)
    yield _fair(worst)
    slower = _slower(phases, worst)
    held_back = held_back_clause(slower.report)
    yield f"in {slower.place}, {held_back}" if held_back and slower.name else held_back


def _median(phase: _MeasuredPhase, kpi: str) -> float | None:
    spread = phase.figures.spread.get(kpi)
    return None if spread is None else spread.median


def _common(phases: Sequence[_MeasuredPhase]) -> str | None:
    """The KPI by which phases are compared, None if there is none."""
    return next(
        (kpi for kpi in COMPARED if sum(_median(one, kpi) is not None for one in phases) > 1),
        None,
    )


def _most_different(phases: Sequence[_MeasuredPhase]) -> _MeasuredPhase:
    """The phase that differs most from the first; of phases that cannot be compared the last."""
    kpi = _common(phases)
    if kpi is None:
        return phases[-1]
    first = next(phase for phase in phases if _median(phase, kpi) is not None)
    candidates = [phase for phase in phases if _is_like(phase, first, kpi)]
    return max(
        candidates,
        key=lambda phase: abs((_median(phase, kpi) or 0.0) - (_median(first, kpi) or 0.0)),
    )


def _is_like(phase: _MeasuredPhase, first: _MeasuredPhase, kpi: str) -> bool:
    """Whether a phase has the KPI, of a job of the same pattern."""
    return phase.pattern == first.pattern and _median(phase, kpi) is not None


def _slower(phases: Sequence[_MeasuredPhase], worst: _MeasuredPhase) -> _MeasuredPhase:
    """Of the first phase and the one that differs most from it the slower one."""
    kpi = _common(phases)
    if kpi is None:
        return worst
    first = next(phase for phase in phases if _median(phase, kpi) is not None)
    by_value = sorted((first, worst), key=lambda phase: _median(phase, kpi) or 0.0)
    return by_value[0 if KPIS[kpi].better is Better.HIGHER else 1]


def _difference(phases: Sequence[_MeasuredPhase], worst: _MeasuredPhase) -> str:
    """`busbw 12 GB/s in idle, 6 GB/s in shared (-50%)`; empty if phases cannot be compared."""
    kpi = _common(phases)
    if kpi is None:
        return ""
    first = next(phase for phase in phases if _median(phase, kpi) is not None)
    before, after = _median(first, kpi) or 0.0, _median(worst, kpi) or 0.0
    began = f"{_in_text(kpi)} {format_kpi(kpi, before)} in {first.label}"
    if not before or abs(after / before - 1) < _ALIKE:
        others = [phase for phase in phases if _median(phase, kpi) is not None and phase != first]
        alike = all(_is_like(phase, first, kpi) for phase in others)
        what = "jobs" if any(phase.job for phase in phases) else "phases"
        return f"{began}, alike in all {what}" if before and alike else began
    ended = f"{format_kpi(kpi, after)} in {worst.label}"
    return f"{began}, {ended} ({change(after / before - 1)})"


def _in_text(kpi: str) -> str:
    """The title of a KPI within a sentence."""
    title = KPIS[kpi].title
    return title if title[:2].isupper() else title.lower()


def _reached(phase: _MeasuredPhase) -> str:
    kpi = next((kpi for kpi in COMPARED if _median(phase, kpi) is not None), None)
    if kpi is None:
        return ""
    where = f" in {phase.place}" if phase.name else ""
    return f"{_in_text(kpi)} {format_kpi(kpi, _median(phase, kpi))}{where}"


def _fair(phase: _MeasuredPhase) -> str:
    """`shares are fair after 4 ms, by the model after 5.2 ms`; empty without a model."""
    fair = phase.run.fair_shares
    if fair is None or fair.lab_ns is None:
        return ""
    model = "" if fair.model_ns is None else f", by the model after {duration(fair.model_ns)}"
    return f"shares are fair after {duration(fair.lab_ns)}{model}"


def _missed(result: DrillResult) -> str:
    """The expectations that were measured and missed."""
    texts = [
        f"{KPIS[verdict.kpi].title.lower()} {verdict.shown(result.resolution_of(phase.name))}"
        f" where {verdict.expectation} is expected"
        for phase in result.phases
        for verdict in phase.verdicts
        if not verdict.passed and verdict.observed is not None
    ]
    return f"missed: {and_more(texts)}" if texts else ""


def _figures(phase: _MeasuredPhase, repeats: Sequence[RepeatTable]) -> tuple[Card, ...]:
    summary = phase.summary
    resolution_ns = phase.resolution_ns if phase.run.probes is not None else 0.0
    rows = {row.name: row for row in figure_rows(phase.figures, summary.valid_runs, resolution_ns)}
    table = next((table for table in repeats if table.phase == phase.where), repeats[0])
    missed = {
        verdict.kpi: f"expectation {table.verdict(verdict)}"
        for verdict in summary.verdicts
        if not verdict.passed
    }
    names = OF_PROGRAMS if summary.has_programs else OF_JOBS if summary.has_jobs else OF_PROBES
    chosen = [rows[name] for name in names if name in rows and rows[name].n]
    cards = [_card(_with_metric(row, phase.run), missed) for row in chosen]
    return tuple(cards[:MOST_FIGURES])


def _with_metric(row: FigureRow, run: PhaseRun) -> FigureRow:
    """A figure of the first metric of programs by the metric's own name and unit."""
    if run.programs is None or not row.name.startswith("metric_"):
        return row
    series = run.programs.metrics[0]
    title = row.title.replace("First metric", series.name)
    return replace(row, title=title, value=f"{row.value} {series.unit}".strip())


def _card(row: FigureRow, missed: dict[str, str]) -> Card:
    number = f"n = {row.counted}" if row.valid > 1 else ""
    spread = ", ".join(filter(None, (row.range, number)))
    return Card(row.title, row.value, spread, missed.get(row.name, ""))


def _plot(phase: _MeasuredPhase) -> Figure:
    name, run = "answer", phase.run
    if run.probes is not None:
        return Figure(name, partial(probes_plot, run.probes))
    if run.programs is not None:
        return Figure(name, partial(programs_plot, run.programs), NO_COURSE)
    if run.fair_shares is not None:
        return Figure(name, partial(fair_shares_plot, run.fair_shares, run.reports[0]))
    return Figure(name, partial(progress_plot, phase.report))
