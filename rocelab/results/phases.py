"""The result document of a drill of jobs: every phase of every repeat, and what came of them.

In: the job reports of each repeat. Out: a frozen `JobDrillResult` with each phase's spread over
repeats and its verdicts, as JSON that reads back into the same object. docs/documents.md is made
from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rocelab.documents import Format
from rocelab.errors import InputError
from rocelab.results.drill import Environment, spread_of
from rocelab.results.expectations import Expectation, Figures, KpiValue, Verdict, judge, unmet
from rocelab.results.job import JobReport
from rocelab.results.kpis import job_kpis, phase_kpis
from rocelab.results.shares import FairShares
from rocelab.statistics import Spread

SCHEMA_VERSION = 2
KIND: Literal["jobs"] = "jobs"


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One phase of one repeat.

    reports: of each of its jobs, in order; what devices counted is of all jobs, and the same in
    each report. fair_shares: where the phase was modelled.
    """

    phase: str
    reports: tuple[JobReport, ...]
    fair_shares: FairShares | None

    @property
    def valid(self) -> bool:
        return all(report.valid for report in self.reports)

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it is invalid, each reason once."""
        return tuple(dict.fromkeys(p for report in self.reports for p in report.problems))

    @property
    def errors(self) -> tuple[str, ...]:
        """Queue pairs that failed, of any job."""
        return self.reports[0].errors

    def kpis(self) -> tuple[dict[str, KpiValue], ...]:
        """The figures that stand for this run, by KPI, of each job."""
        return job_kpis(self.reports, self.fair_shares)


@dataclass(frozen=True, slots=True)
class JobSummary:
    """A job of a phase over the valid runs. A KPI that is in none of the three does not apply.

    truths: in how many runs a KPI was true. spread: of those that measured the KPI (its `n`).
    unmeasured: in how many runs a KPI that applies to the job was not measured.
    """

    truths: dict[str, int]
    spread: dict[str, Spread]
    unmeasured: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """A phase over its valid runs; `jobs` in order, none where no run was valid."""

    name: str
    valid_runs: int
    jobs: tuple[JobSummary, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        return self.valid_runs > 0 and all(verdict.passed for verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class JobDrillResult:
    """Everything a drill of jobs found out.

    kind: drills with faults have none; a reader of one kind refuses the other. drill, lab: the
    specs in full, as JSON values. dilation: how many times slower than the modelled network the lab
    ran. notes: what the lab had to do without on this machine. repeats: of each, a run per phase,
    in order. passed: what the exit code says: every phase has a valid run and every verdict passed.
    """

    schema_version: int
    kind: Literal["jobs"]
    name: str
    title: str
    description: str
    drill: dict[str, Any]
    lab: dict[str, Any]
    environment: Environment
    dilation: float
    notes: tuple[str, ...]
    repeats: tuple[tuple[PhaseRun, ...], ...]
    phases: tuple[PhaseSummary, ...]
    passed: bool

    def runs_of(self, phase: str) -> tuple[PhaseRun, ...]:
        """The runs of a phase, one per repeat."""
        return tuple(run for repeat in self.repeats for run in repeat if run.phase == phase)

    def unmet_by(self, repeat: Sequence[PhaseRun], phase: str) -> tuple[Verdict, ...]:
        """The expectations of a phase that one repeat by itself does not meet, with what it
        measured; none where the phase is not valid in it."""
        verdicts = next(each.verdicts for each in self.phases if each.name == phase)
        held = figures_held(repeat, phase)
        return unmet(verdicts, held.figures, held.others) if held.figures else ()


def conclude(
    *,
    drill: Mapping[str, Any],
    lab: Mapping[str, Any],
    environment: Environment,
    dilation: float,
    notes: Sequence[str],
    repeats: Sequence[Sequence[PhaseRun]],
    expectations: Mapping[str, Sequence[Expectation]],
) -> JobDrillResult:
    """The result of a drill from its repeats; `expectations` are by phase, in order."""
    phases = tuple(summarise(name, repeats, wanted) for name, wanted in expectations.items())
    return JobDrillResult(
        schema_version=SCHEMA_VERSION,
        kind=KIND,
        name=drill["name"],
        title=drill["title"] or drill["name"],
        description=drill["description"],
        drill=dict(drill),
        lab=dict(lab),
        environment=environment,
        dilation=dilation,
        notes=tuple(notes),
        repeats=tuple(tuple(repeat) for repeat in repeats),
        phases=phases,
        passed=all(phase.passed for phase in phases),
    )


def summarise(
    name: str, repeats: Sequence[Sequence[PhaseRun]], expectations: Sequence[Expectation]
) -> PhaseSummary:
    """A phase over its runs; those that are not valid enter nothing.

    Where a figure is held against another phase's, that is of its first job in the same repeat.
    """
    valid = [run.kpis() for repeat in repeats for run in repeat if run.phase == name and run.valid]
    held = [figures_held(repeat, name) for repeat in repeats]
    figures = [each for of_repeat in held for each in of_repeat.figures]
    others = [each for of_repeat in held for each in of_repeat.others]
    jobs = tuple(map(_summarised, zip(*valid, strict=True)))
    return PhaseSummary(name, len(valid), jobs, judge(expectations, figures, others))


@dataclass(frozen=True, slots=True)
class Held:
    """What a phase's expectations are held against in one repeat: figures of each of its jobs, and
    for each those of the other phases."""

    figures: tuple[Figures, ...]
    others: tuple[Mapping[str, Figures], ...]


def figures_held(repeat: Sequence[PhaseRun], phase: str) -> Held:
    """The figures of a phase in one repeat, none where it is not valid; another phase's, where that
    is valid, are those of its first job."""
    figures = {run.phase: phase_kpis(run.kpis()) for run in repeat if run.valid}
    if phase not in figures:
        return Held((), ())
    firsts = {name: of_phase[0] for name, of_phase in figures.items()}
    return Held(figures[phase], (firsts,) * len(figures[phase]))


def _summarised(figures: Sequence[Mapping[str, KpiValue]]) -> JobSummary:
    """A job from its figures in each valid run."""
    truths: dict[str, int] = {}
    unmeasured: dict[str, int] = {}
    for of_run in figures:
        for kpi, value in of_run.items():
            if isinstance(value, bool):
                truths[kpi] = truths.get(kpi, 0) + value
            elif value is None:
                unmeasured[kpi] = unmeasured.get(kpi, 0) + 1
    return JobSummary(truths, spread_of(figures), unmeasured)


_FORMAT = Format(
    JobDrillResult,
    SCHEMA_VERSION,
    "a result document",
    "give the result.json that `rocelab drill run` wrote for a drill with phases",
)


def from_json(text: str) -> JobDrillResult:
    """The result that `rocelab.documents.to_json` wrote. Raises InputError on anything else."""
    document = _FORMAT.parsed(text)
    if document.get("kind") != KIND:
        raise InputError("not the result document of a drill of jobs", hint=_FORMAT.hint)
    return _FORMAT.validated(document)
