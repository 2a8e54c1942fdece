"""The result document of a drill; every table, plot and page is made from it.

A frozen `DrillResult` has the measurements of each phase and repeat, each phase's spread over
repeats, and the verdicts. It is written as JSON and reads back into an equal object.
docs/documents/ is generated from it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from rocelab.base.documents import Format, read_text
from rocelab.base.errors import InputError
from rocelab.base.statistics import Spread, spread
from rocelab.base.wording import listed
from rocelab.results.convergence import MeasurementMethod
from rocelab.results.environment import Environment
from rocelab.results.expectations import Expectation, Verdict, judge, unmet
from rocelab.results.health import HealthReport
from rocelab.results.job import JobReport
from rocelab.results.kpi import Figures, PhaseKind
from rocelab.results.kpis import job_figures, phase_figures, probe_figures, program_figures
from rocelab.results.oflab import LabDocument
from rocelab.results.probes import ProbeRun
from rocelab.results.programs import ProgramsRun
from rocelab.results.shares import FairShares
from rocelab.results.stages import Stages

SCHEMA_VERSION = 3

UNSCALED = (
    "the CPU time that zebra, bgpd and the kernel need to notice, decide and install routes",
    "BGP and BFD timers, which run at the values in the lab's file",
    "packet sizes, queue depths and ECN thresholds, which are bytes and not time",
    "so convergence times are given in the lab's clock only: they are not divided by the dilation",
)


@dataclass(frozen=True, slots=True)
class ScaledQuantity:
    """A time or a rate in both clocks. Rates of the modelled network are `dilation` times the
    lab's, its times that much shorter."""

    name: str
    unit: Literal["ns", "packets/s"]
    lab: float
    modelled: float


@dataclass(frozen=True, slots=True)
class Clocks:
    """The lab's dilation, what it scales (in both clocks), and in words what it does not scale."""

    dilation: float
    scaled: tuple[ScaledQuantity, ...]
    unscaled: tuple[str, ...] = UNSCALED


@dataclass(frozen=True, slots=True)
class ProbePlan:
    """How probes are measured, and the settings of their phase, in both clocks."""

    method: MeasurementMethod
    clocks: Clocks


@dataclass(frozen=True, slots=True)
class JobsRun:
    """Jobs that ran at the same time."""

    problems: tuple[str, ...]
    """Why the run is invalid; empty when it is valid."""
    reports: tuple[JobReport, ...]
    """Of each job, in order; counts of devices cover all jobs and are the same in each report."""
    has_model: bool = False
    """Whether the phase has a model."""
    fair_shares: FairShares | None = None
    """What it says; None without one, or if the job failed or sent nothing."""
    stages: tuple[Stages, ...] = ()
    """Of each event, empty without `measure.stages`."""
    health: HealthReport | None = None
    """None without `health`."""
    diagnoses: tuple[str | None, ...] = ()
    """What `rocelab diagnose` finds for each job, None for a stream, empty if the job has no times
    of its sends; none unless the phase expects a diagnosis."""


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One phase of one repeat: `probes`, `jobs` or `programs`, the others are None."""

    phase: str
    probes: ProbeRun | None = None
    jobs: JobsRun | None = None
    programs: ProgramsRun | None = None
    seconds: float | None = None
    """How long it took, by the machine's clock; None in documents of older versions."""

    @property
    def measured(self) -> ProbeRun | JobsRun | ProgramsRun:
        """What was measured. Raises ValueError for a document that has nothing."""
        measured = self.probes or self.jobs or self.programs
        if measured is None:
            raise ValueError(f"phase {self.phase} has neither probes, jobs nor programs")
        return measured

    @property
    def kind(self) -> PhaseKind:
        """What ran."""
        match self.measured:
            case ProbeRun():
                return PhaseKind.PROBES
            case JobsRun():
                return PhaseKind.JOBS
            case ProgramsRun():
                return PhaseKind.PROGRAMS

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it is invalid, each reason once."""
        return tuple(dict.fromkeys(self.measured.problems))

    @property
    def valid(self) -> bool:
        return not self.problems

    @property
    def reports(self) -> tuple[JobReport, ...]:
        """The report of each job; none for probes."""
        return () if self.jobs is None else self.jobs.reports

    @property
    def errors(self) -> tuple[str, ...]:
        """Failed queue pairs of any job."""
        return () if self.jobs is None else self.jobs.reports[0].errors

    @property
    def resolution_ns(self) -> float:
        """The resolution of convergence times."""
        return 0.0 if self.probes is None else self.probes.overall.resolution_ns

    @property
    def fair_shares(self) -> FairShares | None:
        """The comparison of a job with its model; None without one."""
        return None if self.jobs is None else self.jobs.fair_shares

    def figures(self) -> tuple[Figures, ...]:
        """The applicable KPIs, valid or not: of each job, or of the probes."""
        match self.measured:
            case ProbeRun() as run:
                return (probe_figures(run),)
            case ProgramsRun() as run:
                return (program_figures(run),)
            case JobsRun() as run:
                return job_figures(
                    run.reports,
                    has_model=run.has_model,
                    fair=run.fair_shares,
                    diagnoses=run.diagnoses,
                )


@dataclass(frozen=True, slots=True)
class FigureSummary:
    """The KPIs of the probes, or of a job, over the valid runs, but for findings. A KPI in none of
    the three does not apply."""

    truths: dict[str, int]
    """In how many runs a KPI was true."""
    spread: dict[str, Spread]
    """Over the runs that measured the KPI (its `n`)."""
    unmeasured: dict[str, int] = field(default_factory=dict)
    """In how many runs an applicable KPI was not measured."""


@dataclass(frozen=True, slots=True)
class PhaseSummary:
    """A phase over its valid runs; `figures` of the probes, of the programs, or of each job in
    order, empty without a valid run. `probes` is None for others."""

    name: str
    valid_runs: int
    figures: tuple[FigureSummary, ...]
    verdicts: tuple[Verdict, ...]
    probes: ProbePlan | None = None
    has_programs: bool = False

    @property
    def has_jobs(self) -> bool:
        return self.probes is None and not self.has_programs

    @property
    def passed(self) -> bool:
        return self.valid_runs > 0 and all(verdict.passed for verdict in self.verdicts)


@dataclass(frozen=True, slots=True)
class EndedEarly:
    """Why a drill ended before its repeats were done."""

    why: str
    failed: bool
    """Whether the lab did something that is a failure of the drill, such as not to converge after a
    fault."""


@dataclass(frozen=True)
class DrillResult(LabDocument):
    """The result of a drill."""

    schema_version: int
    name: str
    title: str
    description: str
    drill: dict[str, Any]
    """The specs in full, every default written out, as JSON values in ns, bit/s and bytes; a drill
    without phases has one phase of its own name."""
    lab: dict[str, Any]
    """The specs in full, every default written out, as JSON values in ns, bit/s and bytes; a drill
    without phases has one phase of its own name."""
    environment: Environment
    dilation: float
    """How many times slower than the modelled network the lab ran."""
    notes: tuple[str, ...]
    """Features that the lab lacked on this machine."""
    repeats: tuple[tuple[PhaseRun, ...], ...]
    """Of each, a run per phase, in order."""
    phases: tuple[PhaseSummary, ...]
    passed: bool
    """The drill ended, every phase has a valid run and every verdict passed; the exit code is then
    0."""
    wanted_repeats: int | None = None
    """The valid repeats that were asked for; None in documents of older versions."""
    ended_early: EndedEarly | None = None
    """None if the drill was not interrupted; else `repeats` are those that were measured before."""

    @property
    def outcome(self) -> Literal["passed", "failed", "not measured", "ended early"]:
        """`not measured`: no repeat is valid, and no measured figure missed an expectation."""
        if self.passed:
            return "passed"
        if self.ended_early is not None and not self.ended_early.failed:
            met = all(phase.passed for phase in self.phases)
            return "ended early" if met or not self.valid_repeats else "failed"
        verdicts = [verdict for phase in self.phases for verdict in phase.verdicts]
        missed = any(verdict.observed is not None and not verdict.passed for verdict in verdicts)
        return "failed" if missed or self.valid_repeats else "not measured"

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader must know before the figures: why the drill ended early, then the notes."""
        if self.ended_early is None:
            return self.notes
        of_wanted = "" if self.wanted_repeats is None else f" of {self.wanted_repeats}"
        valid = len(self.valid_repeats)
        said = f"ended early, with {valid}{of_wanted} valid repeats: {self.ended_early.why}"
        return (said, *self.notes)

    @property
    def has_jobs(self) -> bool:
        """Whether a phase runs jobs."""
        return any(phase.has_jobs for phase in self.phases)

    @property
    def valid_repeats(self) -> tuple[tuple[PhaseRun, ...], ...]:
        """The repeats whose phases are all valid."""
        return tuple(repeat for repeat in self.repeats if all(run.valid for run in repeat))

    def runs_of(self, phase: str) -> tuple[PhaseRun, ...]:
        """The runs of a phase, one per repeat."""
        return tuple(run for repeat in self.repeats for run in repeat if run.phase == phase)

    def job_of(self, phase: str, network: str | None = None) -> JobReport:
        """The first job with times of its sends in the first valid run of a phase; if there is
        none, the first job at all. network: of those in it, in a lab with several. Raises
        InputError for a phase without jobs there."""
        runs = [run for run in self.runs_of(phase) if run.reports]
        if not runs:
            names = dict.fromkeys(
                run.phase for repeat in self.repeats for run in repeat if run.reports
            )
            raise InputError(
                f"the drill {self.name} has no phase {phase} with jobs",
                hint=f"it has {listed(names, 'and')}" if names else "its phases send probes",
            )
        run = next((run for run in runs if run.valid), runs[0])
        reports = [job for job in run.reports if network is None or job.is_in(network)]
        if not reports:
            known = list(dict.fromkeys(job.network_name or "" for job in run.reports))
            raise InputError(
                f"phase {phase} of the drill {self.name} has no job in network {network}",
                hint=f"its jobs are in {listed(known, 'and')}"
                if any(known)
                else "its lab has one network",
            )
        return next((job for job in reports if job.steps is not None), reports[0])

    def resolution_of(self, phase: str) -> float:
        """The resolution of a phase's convergence times, ns: that of its coarsest valid run."""
        return max((run.resolution_ns for run in self.runs_of(phase) if run.valid), default=0.0)

    def where(self, phase: str) -> str:
        """The phase's name, empty for a drill without phases."""
        return "" if phase == self.name and len(self.phases) == 1 else phase

    def unmet_by(self, repeat: Sequence[PhaseRun], phase: str) -> tuple[Verdict, ...]:
        """The expectations of a phase that one repeat alone does not meet, with its measurements;
        none if the phase is invalid in it."""
        verdicts = next(outcome.verdicts for outcome in self.phases if outcome.name == phase)
        held = compared_figures(repeat, phase)
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
    probes: Mapping[str, ProbePlan],
    programs: Collection[str] = (),
    wanted_repeats: int | None = None,
    ended_early: EndedEarly | None = None,
) -> DrillResult:
    """The result of a drill from its repeats.

    `drill` and `lab` are the specs as JSON values, `model_dump(mode="json", exclude_none=True)`;
    `expectations` are by phase, in order; `probes` has the phases that send probes, `programs` the
    names of those that run programs.
    """
    phases = tuple(
        summarise(name, repeats, wanted, probes.get(name), has_programs=name in programs)
        for name, wanted in expectations.items()
    )
    return DrillResult(
        schema_version=SCHEMA_VERSION,
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
        passed=ended_early is None and all(phase.passed for phase in phases),
        wanted_repeats=wanted_repeats,
        ended_early=ended_early,
    )


def summarise(
    name: str,
    repeats: Sequence[Sequence[PhaseRun]],
    expectations: Sequence[Expectation],
    probes: ProbePlan | None = None,
    *,
    has_programs: bool = False,
) -> PhaseSummary:
    """A phase over its runs; invalid runs do not count.

    If a figure is compared with another phase's, it is that of its first job in the same repeat.
    """
    runs = [run for repeat in repeats for run in repeat if run.phase == name and run.valid]
    valid = [run.figures() for run in runs]
    held = [compared_figures(repeat, name) for repeat in repeats]
    figures = [figure for of_repeat in held for figure in of_repeat.figures]
    others = [other for of_repeat in held for other in of_repeat.others]
    summaries = tuple(map(_summarised, zip(*valid, strict=True)))
    verdicts = judge(expectations, figures, others)
    return PhaseSummary(name, len(valid), summaries, verdicts, probes, has_programs)


@dataclass(frozen=True, slots=True)
class ComparedFigures:
    """The figures that a phase's expectations are compared with in one repeat: those of each of its
    jobs, and for each those of the other phases."""

    figures: tuple[Figures, ...]
    others: tuple[Mapping[str, Figures], ...]


def compared_figures(repeat: Sequence[PhaseRun], phase: str) -> ComparedFigures:
    """The figures of a phase in one repeat, none if it is invalid; those of another valid phase are
    those of its first job."""
    figures = {run.phase: phase_figures(run.figures()) for run in repeat if run.valid}
    if phase not in figures:
        return ComparedFigures((), ())
    firsts = {name: of_phase[0] for name, of_phase in figures.items()}
    return ComparedFigures(figures[phase], (firsts,) * len(figures[phase]))


def _summarised(figures: Sequence[Figures]) -> FigureSummary:
    """The summary of the figures of each valid run."""
    truths: dict[str, int] = {}
    unmeasured: dict[str, int] = {}
    measured: dict[str, list[float]] = {}
    for of_run in figures:
        for kpi, value in of_run.items():
            if isinstance(value, bool):
                truths[kpi] = truths.get(kpi, 0) + value
            elif isinstance(value, str):
                continue
            elif value is None:
                unmeasured[kpi] = unmeasured.get(kpi, 0) + 1
            else:
                measured.setdefault(kpi, []).append(float(value))
    spreads = {kpi: spread(values) for kpi, values in measured.items()}
    return FigureSummary(truths, spreads, unmeasured)


def in_both_clocks(
    dilation: float, times_ns: Mapping[str, int], rates_pps: Mapping[str, float]
) -> Clocks:
    """The settings of a phase, in the lab's clock and the modelled network's."""
    times = [
        ScaledQuantity(name, "ns", float(lab), lab / dilation) for name, lab in times_ns.items()
    ]
    rates = [
        ScaledQuantity(name, "packets/s", float(lab), lab * dilation)
        for name, lab in rates_pps.items()
    ]
    return Clocks(dilation, (*times, *rates))


_FORMAT = Format(
    DrillResult,
    SCHEMA_VERSION,
    "a result document",
    "give the result.json that `rocelab drill run` wrote; one of an older version is read by the "
    "rocelab that wrote it",
)


def from_json(text: str) -> DrillResult:
    """The result that `rocelab.base.documents.to_json` wrote. Raises InputError for anything
    else."""
    return _FORMAT.read(text)


def read_drill_result(path: Path) -> DrillResult:
    """The result of a drill in a file, or in the result.json of a folder. Raises InputError with
    the file if there is none."""
    file = path / "result.json" if _is_folder(path) else path
    text = read_text(
        file, hint="give a folder that `rocelab drill run --out` wrote, or its result.json"
    )
    try:
        return from_json(text)
    except InputError as error:
        raise InputError(f"{file}: {error.message}", hint=error.hint) from None


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False
