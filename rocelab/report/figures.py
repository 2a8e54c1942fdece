"""The figures of a run, its expectations and its health as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from rocelab.base.quantities import Unit, formatted, share
from rocelab.base.wording import of_plural
from rocelab.report.document import Cell, Column, Table, Tone, Toned, columns
from rocelab.report.repeats import RepeatTable
from rocelab.results.drill import DrillResult, FigureSummary, PhaseSummary
from rocelab.results.health import HealthReport, SliReport
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
                cov = "" if spread.cov is None else share(spread.cov)
        elif kpi.name in summary.unmeasured:
            value, n = format_kpi(kpi.name, None), 0
        if value:
            row = FigureRow(kpi.name, kpi.title, kpi.meaning, value, extremes, cov, n, valid_runs)
            rows.append(row)
    return rows


def clock_of(*phases: PhaseSummary) -> str:
    """`lab` of probes, `modelled` of jobs, both if there are both: the clock of their times."""
    clocks = {"modelled" if phase.has_jobs else "lab" for phase in phases}
    return "lab (probes) or modelled (jobs)" if len(clocks) > 1 else clocks.pop()


def figures_table(phase: PhaseSummary, summary: FigureSummary, resolution_ns: float = 0.0) -> Table:
    """The KPIs of a phase over its valid runs, with their spread if there are several."""
    valid_runs, clock = phase.valid_runs, clock_of(phase)
    rows = figure_rows(summary, valid_runs, resolution_ns)
    meaning = Column("what it is", page_only=True)
    if valid_runs < 2:
        head = (Column(""), Column(f"value, {clock}", Unit.FIGURE), meaning)
        cells = tuple((row.title, row.value, row.meaning) for row in rows)
        return Table("", head, cells, sortable=False)
    return Table(
        "",
        (Column(""), *columns(Unit.FIGURE, f"median, {clock}", "min to max", "CoV", "n"), meaning),
        tuple((row.title, row.value, row.range, row.cov, row.counted, row.meaning) for row in rows),
        sortable=False,
    )


def verdicts_table(result: DrillResult, repeats: Sequence[RepeatTable]) -> Table:
    """Every expectation of every phase; `repeats` has an entry per phase."""
    several = any(of_phase.phase for of_phase in repeats)
    return Table(
        "",
        (
            *((Column("phase"),) if several else ()),
            *columns(Unit.TEXT, "expectation", "expected"),
            Column(f"worst, {clock_of(*result.phases)}", Unit.FIGURE),
            Column(""),
        ),
        tuple(
            (
                *((of_phase.phase,) if several else ()),
                KPIS[verdict.kpi].title,
                verdict.expectation,
                verdict.shown(result.resolution_of(phase.name)),
                Toned(of_phase.verdict(verdict), Tone.GOOD if verdict.passed else Tone.BAD),
            )
            for phase, of_phase in zip(result.phases, repeats, strict=True)
            for verdict in phase.verdicts
        ),
        names=1 + several,
        sortable=False,
    )


def health_table(report: HealthReport) -> Table:
    """A row for each SLI, in the order in which they are defined. A breach is a sample that missed
    the objective."""
    return Table(
        "",
        (
            Column("SLI"),
            *columns(Unit.FIGURE, "objective", "worst", "where"),
            Column("breaches", Unit.COUNT),
        ),
        tuple(
            (
                sli.sli.replace("_", " "),
                sli.objective_text(partial(_objective, sli)),
                _sli(sli.worst, sli),
                sli.worst_place,
                _breaches(sli),
            )
            for sli in report.slis
        ),
    )


def network_totals(report: HealthReport) -> tuple[Table, ...]:
    """A row for each network of a lab with several; nothing of another lab."""
    if not report.networks:
        return ()
    table = Table(
        "Networks",
        (
            Column("network"),
            *columns(Unit.COUNT, "switches", "links", "down", "sessions", "not up"),
            Column("sent by all ports", Unit.BYTES),
            *columns(Unit.COUNT, "lost on links", "dropped by queues"),
            Column("SLIs missed", Unit.TEXT),
        ),
        tuple(
            (
                *(one.network, one.switches, one.links, one.links_down),
                *(one.sessions, one.sessions_down, one.sent_bytes),
                *(one.lost_packets, one.queue_drops),
                ", ".join(name.replace("_", " ") for name in one.missed) or "none",
            )
            for one in report.networks
        ),
    )
    return (table,)


def _breaches(sli: SliReport) -> Cell:
    number = sli.breached_samples
    # No drill fails by its SLIs: red is for expectations.
    return number if sli.met else Toned(formatted(number, Unit.COUNT), Tone.CAUTION)


def _objective(sli: SliReport, value: float) -> str:
    return f"<= {_sli(value, sli)}"


def _sli(value: float, sli: SliReport) -> str:
    """`68 packets`, `0.08% of the buffer`."""
    if sli.unit.startswith("of "):
        return f"{share(value)} {sli.unit}"
    return of_plural(value, sli.unit)
