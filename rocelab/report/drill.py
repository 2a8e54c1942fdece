"""The document of a drill: its expectations, then each phase with the run that stands for it.

Tables and figures of a phase show the run of `representative`; a phase without a valid run has no
figures. Nothing is measured here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import PurePath

from rocelab.base.errors import InputError, MachineError, PluginError, RocelabError
from rocelab.base.quantities import Unit
from rocelab.base.wording import counted
from rocelab.report.answers.drill import drill_answer
from rocelab.report.basis import with_basis
from rocelab.report.document import (
    Block,
    Chapter,
    Code,
    Column,
    Document,
    Hyperlink,
    Items,
    Note,
    Replay,
    Section,
    Table,
    Tone,
    Toned,
    Value,
    columns,
)
from rocelab.report.figures import (
    FigureRow,
    clock_of,
    figure_rows,
    figures_table,
    health_table,
    network_totals,
    verdicts_table,
)
from rocelab.report.jobs.plots import fair_shares_plot
from rocelab.report.jobs.sections import figures_by_phase, jobs_sections
from rocelab.report.jobs.text import limits
from rocelab.report.machine import machine_section
from rocelab.report.plots import svg
from rocelab.report.probes import sections as probes
from rocelab.report.programs import PROGRAM_LIMITS, programs_sections
from rocelab.report.repeats import RepeatTable, repeat_tables, repeats_table, representative
from rocelab.report.replay.recording import recording
from rocelab.report.stages import stages_sections
from rocelab.results import job
from rocelab.results.drill import UNSCALED, DrillResult, PhaseRun, PhaseSummary
from rocelab.results.health import HealthReport
from rocelab.results.probes import ProbeRun
from rocelab.results.programs import ProgramsRun

EVIDENCE = "evidence"

NOTHING_MEASURED = Note("No repeat was valid, so only the reasons are reported.", Tone.BAD)


def drill_document(result: DrillResult) -> Document:
    """All of a drill."""
    repeats = repeat_tables(result)
    lab, alone = result.lab["name"], len(result.phases) == 1
    document = Document(
        result.title,
        (
            Replay(partial(recording, result)),
            *([figures_by_phase(result, repeats)] if result.has_jobs and alone else []),
            *_phases(result, repeats),
            *_about(result),
        ),
        name=result.name,
        verdict=_verdict(result),
        kind=f"rocelab drill `{result.name}` on lab `{lab}`",
        lead=result.description,
        meta=f"lab {lab} · {result.environment.started} · {_repeats_text(result, repeats)}",
        card=drill_answer(result, repeats),
        answer=(
            *(Note(text, Tone.CAUTION) for text in result.remarks),
            *_reasons(result, repeats),
            *([] if alone else [figures_by_phase(result, repeats)]),
            *_events(result),
            _expectations(result, repeats),
        ),
    )
    return with_basis(document, result.basis)


def _expectations(result: DrillResult, repeats: Sequence[RepeatTable]) -> Section:
    """Folded if all are met."""
    verdicts = [verdict for phase in result.phases for verdict in phase.verdicts]
    unmeasured = sum(not verdict.passed and verdict.observed is None for verdict in verdicts)
    missed = sum(not verdict.passed for verdict in verdicts) - unmeasured
    parts = [
        f"{number} of {len(verdicts)} {what}"
        for number, what in ((missed, "not met"), (unmeasured, "not measured"))
        if number
    ]
    title = f"Expectations: {', '.join(parts) or 'all met'}"
    return Section(title, (verdicts_table(result, repeats),), folded=not parts)


def _events(result: DrillResult) -> list[Section]:
    """The events of a drill of one phase: the key of their names."""
    chosen = representative(result, result.phases[0].name)
    if len(result.phases) > 1 or chosen is None or chosen[1].probes is None:
        return []
    assert result.phases[0].probes is not None
    return [probes.events_section(chosen[1].probes, result.phases[0].probes.method)]


def summary_document(result: DrillResult) -> Document:
    """A drill in short, for the page of a job in CI: the expectations, why repeats do not count,
    each repeat and the figures."""
    repeats = repeat_tables(result)
    environment = result.environment
    end = result.remarks[:1] if result.ended_early is not None else ()
    return Document(
        result.title,
        (*_folded_repeats(result, repeats), *_folded_figures(result, repeats)),
        name=result.name,
        verdict=_verdict(result),
        meta=f"Lab {result.lab['name']}, {repeats[0].summary}, {environment.routing_text}, "
        f"kernel {environment.kernel}",
        answer=(verdicts_table(result, repeats), Items((*end, *_lines(repeats)))),
    )


def error_document(name: str, error: BaseException) -> Document:
    """A drill called `name` that has no result because of `error`."""
    text = str(error) or type(error).__name__
    verdict = Toned(_what_ended_it(error), Tone.BAD)
    return Document("", (Code(text),), name=name, verdict=verdict)


def drawings(result: DrillResult) -> Iterator[tuple[str, str]]:
    """For each modelled phase the file PHASE.svg: its name and content. None without matplotlib."""
    if find_spec("matplotlib") is None:
        return
    for phase in result.phases:
        chosen = representative(result, phase.name)
        fair = None if chosen is None else chosen[1].fair_shares
        if fair is not None:
            assert chosen is not None
            drawing = fair_shares_plot(fair, chosen[1].reports[0])
            yield f"{phase.name}.svg", svg(drawing, phase.name)


def _verdict(result: DrillResult) -> Toned:
    return Toned(result.outcome, Tone.GOOD if result.passed else Tone.BAD)


def _what_ended_it(error: BaseException) -> str:
    if isinstance(error, MachineError):
        return "this machine cannot run it"
    if isinstance(error, PluginError):
        return "a package that adds to rocelab is wrong"
    if isinstance(error, InputError):
        return "the input is wrong"
    return "failed" if isinstance(error, RocelabError) else "ended before it had a result"


def _repeats_text(result: DrillResult, repeats: Sequence[RepeatTable]) -> str:
    """`3 valid repeats`, with several phases also their number."""
    if len(repeats) == 1:
        return repeats[0].summary
    return f"{counted(len(result.repeats), 'repeat')} of {len(repeats)} phases"


def _lines(repeats: Sequence[RepeatTable]) -> Iterator[str]:
    return (line for of_phase in repeats for line in of_phase.lines)


def _reasons(result: DrillResult, repeats: Sequence[RepeatTable]) -> Iterator[Note]:
    """Why repeats do not count or failed, and the queue pairs that failed. Where all that count
    failed, the expectations say why."""
    tone = Tone.CAUTION if result.passed else Tone.BAD
    for of_phase in repeats:
        lines = of_phase.lines if of_phase.failed < of_phase.valid else [of_phase.invalid_line]
        yield from (Note(line, tone) for line in lines if line)
    for number, repeat in enumerate(result.repeats, 1):
        for run in repeat:
            where = f", phase {result.where(run.phase)}" if result.where(run.phase) else ""
            for error in run.errors:
                yield Note(f"repeat {number}{where}: {error}")


def _folded_repeats(result: DrillResult, repeats: Sequence[RepeatTable]) -> Iterator[Section]:
    for phase, of_phase in zip(result.phases, repeats, strict=True):
        if len(of_phase.rows) > 1:
            where = f" of phase {of_phase.phase}" if of_phase.phase else ""
            table = repeats_table(of_phase, clock_of(phase))
            yield Section(f"Repeats{where}", (table,), folded=True)


def _folded_figures(result: DrillResult, repeats: Sequence[RepeatTable]) -> Iterator[Section]:
    several = any(of_phase.phase for of_phase in repeats)
    rows = tuple(
        (*((where,) if several else ()), row.title, row.value, row.range, row.counted)
        for where, row in _figures(result, repeats)
    )
    head = (
        *((Column("phase"),) if several else ()),
        Column("figure"),
        *columns(Unit.FIGURE, f"median, {clock_of(*result.phases)}", "min to max", "repeats"),
    )
    yield Section("Figures", (Table("", head, rows),) if rows else (), folded=True)


def _figures(
    result: DrillResult, repeats: Sequence[RepeatTable]
) -> Iterator[tuple[str, FigureRow]]:
    for phase, of_phase in zip(result.phases, repeats, strict=True):
        resolution_ns = result.resolution_of(phase.name)
        for number, summary in enumerate(phase.figures, 1):
            job = f", job {number}" if len(phase.figures) > 1 else ""
            for row in figure_rows(summary, phase.valid_runs, resolution_ns):
                yield f"{of_phase.phase}{job}", row


def _phases(result: DrillResult, repeats: Sequence[RepeatTable]) -> Iterator[Block]:
    for phase, of_phase in zip(result.phases, repeats, strict=True):
        blocks = tuple(_phase(result, phase, of_phase))
        if of_phase.phase:
            yield Chapter(f"Phase {of_phase.phase}", blocks)
        else:
            yield from blocks


def _phase(result: DrillResult, phase: PhaseSummary, repeats: RepeatTable) -> Iterator[Block]:
    chosen = representative(result, phase.name)
    many = len(result.repeats) > 1
    if chosen is not None and not phase.has_jobs:
        yield _figures_of_phase(result, phase, repeats)
    if many:
        where = f" of phase {repeats.phase}" if repeats.phase else ""
        below = (
            []
            if chosen is None
            else [Note(f"What follows is of repeat {chosen[0]}, nearest the median.")]
        )
        yield Section(f"Repeats{where}", (repeats_table(repeats, clock_of(phase)), *below))
    if chosen is None:
        yield NOTHING_MEASURED
        return
    number, run = chosen
    alone = len(result.phases) == 1
    yield from _run(phase, run, f", repeat {number}" if many else "", alone=alone)


def _figures_of_phase(result: DrillResult, phase: PhaseSummary, repeats: RepeatTable) -> Section:
    (figures,) = phase.figures
    what = f"Phase {repeats.phase}" if repeats.phase else "Overall"
    table = figures_table(phase, figures, result.resolution_of(phase.name))
    return Section(f"{what}, {repeats.summary}", (table,))


def _run(phase: PhaseSummary, run: PhaseRun, repeat: str, *, alone: bool) -> Iterator[Block]:
    """The sections of one run; `repeat` names it, if there are several. alone: the phase is the
    only one, and its events are in the answer."""
    measured = run.measured
    switches = [
        *stages_sections(measured.stages, phase.name),
        *([] if measured.health is None else [_health(measured.health)]),
    ]
    if isinstance(measured, ProgramsRun):
        yield from programs_sections(phase.name, measured, repeat)
        yield from switches
        return
    if not isinstance(measured, ProbeRun):
        yield from jobs_sections(phase, measured, repeat)
        yield from switches
        return
    assert phase.probes is not None
    if not alone:
        yield probes.events_section(measured, phase.probes.method)
    yield probes.losses_section(measured, phase.name)
    yield probes.fib_section(measured, phase.name)
    yield from switches
    yield probes.balance_section(measured, phase.name)


def _health(report: HealthReport) -> Section:
    evidence = [evidence_link(folder) for folder in report.evidence]
    links = [part for link in evidence for part in (link, ", ")][:-1]
    return Section(
        "Health",
        (
            Note(
                f"SLIs in {report.sampling}. A breach is a sample that missed the objective; "
                "expectations judge the drill, and not these.",
                page_only=True,
            ),
            health_table(report),
            *network_totals(report),
            *([Note(("Evidence was collected in ", *links, "."))] if links else []),
        ),
    )


def evidence_link(folder: str) -> Hyperlink | str:
    """The link to a bundle from the page, which is beside the folder `evidence`; the name alone of
    a folder elsewhere."""
    parts = PurePath(folder).parts
    if EVIDENCE not in parts:
        return folder
    inside = PurePath(*parts[len(parts) - 1 - parts[::-1].index(EVIDENCE) :])
    return Hyperlink(str(inside), f"{inside}/")


def _about(result: DrillResult) -> list[Section]:
    """What a reader of the page may want to know besides: limits, clocks, machine, command."""
    lossless = bool(result.lab["queues"].get("pfc"))
    has_probes = any(phase.probes is not None for phase in result.phases)
    has_programs = any(phase.has_programs for phase in result.phases)
    texts = (probes.LIMITS if has_probes else ()) + (
        limits(lossless=lossless) if result.has_jobs else ()
    )
    texts += PROGRAM_LIMITS if has_programs else ()
    return [
        Section(
            "Limits",
            (Items(texts), _clocks(result, has_probes=has_probes)),
            page_only=True,
        ),
        machine_section(result.environment),
        _reproduction(result),
    ]


def _clocks(result: DrillResult, *, has_probes: bool) -> Section:
    text = f"The lab's clock runs {result.dilation:g} times slower than the modelled network's." + (
        " Times and rates of jobs are those of the modelled network." if result.has_jobs else ""
    )
    scaled = [
        figure
        for phase in result.phases
        if phase.probes is not None
        for figure in phase.probes.clocks.scaled
    ]
    head = (Column("scaled"), *columns(Unit.FIGURE, "lab", "modelled"))
    rows = tuple(
        (
            figure.name,
            Value(figure.lab, Unit(figure.unit)),
            Value(figure.modelled, Unit(figure.unit)),
        )
        for figure in scaled
    )
    unscaled = (UNSCALED if has_probes else ()) + (job.UNSCALED if result.has_jobs else ())
    return Section(
        "Two clocks",
        (
            Note(text),
            Table("", head, rows),
            Note("Not scaled:"),
            Items(tuple(dict.fromkeys(unscaled))),
        ),
    )


def _reproduction(result: DrillResult) -> Section:
    command = result.environment.command or (
        f"rocelab drill run {result.name} --repeat {len(result.repeats)} --out "
        f"results/{result.name}"
    )
    return Section(
        "How to reproduce",
        (
            Code(command),
            Note(
                "With the drill and the lab below, in full and with every default written out "
                "(times in ns, rates in bit/s, sizes in bytes). Flows, ports and hash seeds follow "
                "from them; timing does not, which is what the repeats are for."
            ),
            Code(json.dumps(result.drill, indent=1), title="drill"),
            Code(json.dumps(result.lab, indent=1), title="lab"),
        ),
        page_only=True,
    )
