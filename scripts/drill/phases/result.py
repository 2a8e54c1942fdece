"""The result document of a drill of jobs: every phase of every repeat, and what came of them.

In: the job reports of each repeat. Out: a frozen `JobDrillResult` with each phase's spread over
repeats and its verdicts, as JSON that reads back into the same object. docs/results.md describes
every field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from labs.errors import InputError
from scripts.drill.expectations import Expectation, KpiValue, Verdict, judge
from scripts.drill.phases.fairness import FairShares
from scripts.drill.phases.kpis import job_kpis
from scripts.drill.result import Environment, on_one_line, spread_of
from scripts.job.document import JobReport
from scripts.statistics import Spread

SCHEMA_VERSION = 1
KIND: Literal["jobs"] = "jobs"


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One phase of one repeat: the job's report and, where it was modelled, `fair_shares`."""

    phase: str
    report: JobReport
    fair_shares: FairShares | None

    @property
    def valid(self) -> bool:
        return self.report.valid

    def kpis(self) -> dict[str, KpiValue]:
        """The figures that stand for this run, by KPI."""
        return job_kpis(self.report, self.fair_shares)


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """A phase over its valid runs. `spread` covers those that measured the KPI (its `n`)."""

    name: str
    valid_runs: int
    truths: dict[str, int]
    spread: dict[str, Spread]
    verdicts: tuple[Verdict, ...]

    @property
    def passed(self) -> bool:
        return self.valid_runs > 0 and all(verdict.passed for verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class JobDrillResult:
    """Everything a drill of jobs found out. `drill`, `lab`: the specs in full, as JSON values.

    `repeats` holds a run per phase, in order. `passed` needs of every phase a valid run and every
    verdict. notes: what the lab had to do without on this machine.
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

    def problems(self) -> list[str]:
        """Why which run is no measurement."""
        return [
            f"repeat {number}, phase {run.phase}: {problem}"
            for number, repeat in enumerate(self.repeats, 1)
            for run in repeat
            for problem in run.report.problems
        ]


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
    phases = tuple(
        summarise(name, [run for repeat in repeats for run in repeat if run.phase == name], wanted)
        for name, wanted in expectations.items()
    )
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
    name: str, runs: Sequence[PhaseRun], expectations: Sequence[Expectation]
) -> PhaseSummary:
    """A phase over its runs; those that are not valid enter nothing."""
    figures = [run.kpis() for run in runs if run.valid]
    truths: dict[str, int] = {}
    for figure in figures:
        for kpi, value in figure.items():
            if isinstance(value, bool):
                truths[kpi] = truths.get(kpi, 0) + value
    return PhaseSummary(
        name, len(figures), truths, spread_of(figures), judge(expectations, figures)
    )


_DOCUMENT = TypeAdapter(JobDrillResult)


def to_json(result: JobDrillResult) -> str:
    """The document as JSON text: the same result gives the same bytes. Vectors of numbers stand on
    one line."""
    return on_one_line(json.dumps(asdict(result), indent=1, sort_keys=True, allow_nan=False)) + "\n"


def from_json(text: str) -> JobDrillResult:
    """The result that `to_json` wrote. Raises InputError on anything else."""
    hint = "give the result.json that `rocelab drill` wrote for a drill with phases"
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InputError(f"not a result document: {error}", hint=hint) from error
    known = document if isinstance(document, dict) else {}
    if known.get("kind") != KIND:
        raise InputError("not the result document of a drill of jobs", hint=hint)
    if known.get("schema_version") != SCHEMA_VERSION:
        raise InputError(
            f"a result document of schema version {known.get('schema_version')!r}; this tool reads "
            f"{SCHEMA_VERSION}",
            hint=hint,
        )
    try:
        return _DOCUMENT.validate_python(document)
    except ValidationError as error:
        raise InputError(f"not a result document: {error}", hint=hint) from error
