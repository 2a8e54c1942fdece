"""The document of a drill that is planned: text, and a picture of the times of its faults."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from rocelab.base.quantities import Unit, duration, size
from rocelab.base.wording import counted
from rocelab.drills.listing import row_of
from rocelab.drills.plan import PlannedDrill, PlannedPhase, ProbePhase, ProgramPhase
from rocelab.drills.show import FaultRow, Span, conditions_of, fault_rows
from rocelab.report.document import Block, Column, Document, Note, Section, Table, columns
from rocelab.report.jobs.text import job_text
from rocelab.results.expectations import Expectation
from rocelab.results.kpis import KPIS

MAX_PICTURE = 64
_MIN_PICTURE = 20
_TICKS = 4
_LEAST_SPAN_NS = 10**9


def view_document(drill: PlannedDrill, width: int, *, plain: bool = False) -> Document:
    """Everything that a user needs to know before running the drill; pictures in lines of `width`
    characters, `plain` in ASCII."""
    row, fabric, phases = row_of(drill.spec), drill.fabric, drill.phases
    texts = [
        drill.spec.description.strip(),
        f"lab       {row.lab}: {counted(len(fabric.switches), 'switch', 'switches')}, "
        f"{counted(len(fabric.links), 'link')}, {counted(len(fabric.servers), 'server')}",
    ]
    if row.seconds is not None:
        texts.append(f"time      about {row.seconds:.0f} s a repeat, and the lab up and down")
    return Document(
        f"{row.name}: {row.title}",
        (
            *(Note(text) for text in texts if text),
            *(
                Section(_phase_title(number, phase, len(phases)), _phase(phase, width, plain))
                for number, phase in enumerate(phases, 1)
            ),
        ),
    )


def _phase_title(number: int, phase: PlannedPhase, phases: int) -> str:
    conditions = conditions_of(phase.spec)
    if phases == 1 and not conditions:
        return " "
    text = f" ({'; '.join(conditions)})" if conditions else ""
    return f"phase {number}, {phase.name}{text}"


def _phase(phase: PlannedPhase, width: int, plain: bool) -> tuple[Block, ...]:
    blocks: list[Block] = []
    if isinstance(phase, ProbePhase):
        blocks += map(Note, _probes(phase))
    elif isinstance(phase, ProgramPhase):
        blocks += map(Note, _programs(phase))
    else:
        specs = (job.job.model_dump(mode="json", exclude_none=True) for job in phase.jobs)
        blocks += (Note(f"  {job_text(spec)}") for spec in specs)
    if faults := fault_rows(phase):
        blocks.append(picture(faults, _span_ns(phase, faults), plain, _width(faults, width)))
    return (*blocks, _expectations(phase.spec.expect.expectations()))


def _probes(phase: ProbePhase) -> list[str]:
    traffic, measure = phase.traffic, phase.spec.measure
    texts = [
        f"traffic   {traffic.pattern} of {counted(traffic.flows, 'flow')}, each "
        f"{traffic.rate_pps:,} packets/s with {size(traffic.payload)} of RoCE payload, "
        f"{duration(traffic.duration)} after {duration(traffic.warmup)} of warm-up",
        f"measured  throughput every {duration(measure.sampling_interval)}; recovered is what "
        f"stays so for {duration(measure.sustained)}; losses count for "
        f"{duration(measure.event_window)} after an event",
    ]
    if phase.spec.crossing:
        texts.append(f"crossing  {phase.spec.crossing} flows at least cross a link that breaks")
    if phase.spec.compare_hashing:
        plans = ", ".join(phase.spec.compare_hashing)
        texts.append(f"before    the same flows undisturbed, with seeds {plans}")
    return texts


def _programs(phase: ProgramPhase) -> list[str]:
    traffic = phase.traffic
    programs = counted(len(phase.programs), "program")
    servers = counted(len({program.node for program in phase.programs}), "server")
    texts = [f"programs  {programs} on {servers}: {shlex.join(traffic.command)}"]
    if traffic.ready is not None:
        texts.append(f"time 0    the first line with {traffic.ready}")
    texts += [
        f"metric    {name}: {metric.pattern}" + (f", in {metric.unit}" if metric.unit else "")
        for name, metric in traffic.metrics.items()
    ]
    return texts


def _span_ns(phase: PlannedPhase, rows: Sequence[FaultRow]) -> int:
    """The time that a picture of faults shows: that of the probes, or slightly more than the last
    change, because the end of jobs is unknown."""
    if isinstance(phase, ProbePhase):
        return phase.traffic.duration
    spans = [span for row in rows for span in row.spans]
    last_ns = max(span.begins_ns if span.ends_ns is None else span.ends_ns for span in spans)
    return max(_LEAST_SPAN_NS, last_ns * 5 // 4)


def _width(rows: Sequence[FaultRow], width: int) -> int:
    """The columns that the names leave for the picture."""
    names = max(len(row.kind) + len(row.subject) for row in rows) + 8
    return max(_MIN_PICTURE, min(MAX_PICTURE, width - names))


def picture(
    rows: Sequence[FaultRow], span_ns: int, plain: bool = False, width: int = MAX_PICTURE
) -> Table:
    """A row per fault, with a bar while it is active; time runs from 0 to `span_ns`.

    `plain` draws it in ASCII. A time shorter than a column still fills one.
    """
    return Table(
        "",
        (*columns(Unit.TEXT, "fault", "of"), Column(scale(span_ns, width), unbroken=True)),
        tuple((row.kind, row.subject, bar(row.spans, span_ns, width, plain)) for row in rows),
        names=2,
    )


def bar(spans: Sequence[Span], span_ns: int, width: int, plain: bool = False) -> str:
    """One character per `width`-th of `span_ns`, filled where any span covers part of it."""
    full, empty = ("#", ".") if plain else ("\N{FULL BLOCK}", "\N{MIDDLE DOT}")
    cells = [empty] * width
    for span in spans:
        ends_ns = span_ns if span.ends_ns is None else span.ends_ns
        first = min(width - 1, span.begins_ns * width // span_ns)
        last = max(first + 1, min(width, -(-ends_ns * width // span_ns)))
        cells[first:last] = full * (last - first)
    return "".join(cells)


def scale(span_ns: int, width: int) -> str:
    """The times at the start of every quarter and at the end, each if there is room."""
    end = duration(span_ns)
    text = "0"
    for tick in range(1, _TICKS):
        place = tick * width // _TICKS
        label = duration(span_ns * tick / _TICKS)
        if len(text) < place and place + len(label) < width - len(end):
            text = text.ljust(place) + label
    return text.ljust(width - len(end)) + end


def _expectations(expectations: Sequence[Expectation]) -> Table:
    return Table(
        "",
        columns(Unit.TEXT, "expected", "", "meaning"),
        tuple(
            (KPIS[item.kpi].title, item.written, KPIS[item.kpi].meaning) for item in expectations
        ),
    )
