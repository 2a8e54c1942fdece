"""The preview of a drill on a terminal: text, and a picture of the times of its faults.

`print_view` writes a `PlannedDrill` to a rich console.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocelab.base.units import format_duration
from rocelab.drills.listing import row_of
from rocelab.drills.plan import PlannedDrill, PlannedPhase, ProbePhase
from rocelab.drills.show import FaultRow, Span, conditions_of, fault_rows
from rocelab.report.console import table
from rocelab.report.jobs.text import job_text
from rocelab.results.expectations import Expectation
from rocelab.results.kpis import KPIS

MAX_PICTURE = 64
_MIN_PICTURE = 20
_TICKS = 4
_LEAST_SPAN_NS = 10**9


def print_view(drill: PlannedDrill, console: Console) -> None:
    """Print everything that a user needs to know before running the drill."""
    row, fabric, phases = row_of(drill.spec), drill.fabric, drill.phases
    console.print(Text(f"{row.name}: {row.title}", style="bold"))
    if description := drill.spec.description.strip():
        console.print(Text(description))
    console.print()
    console.print(
        Text(
            f"lab       {row.lab}: {len(fabric.switches)} switches, {len(fabric.links)} links, "
            f"{len(fabric.servers)} servers"
        )
    )
    if row.seconds is not None:
        about = f"time      about {row.seconds:.0f} s a repeat, and the lab up and down"
        console.print(Text(about))
    for number, phase in enumerate(phases, 1):
        console.print()
        conditions = conditions_of(phase.spec)
        if len(phases) > 1 or conditions:
            text = f" ({'; '.join(conditions)})" if conditions else ""
            console.print(Text(f"phase {number}, {phase.name}{text}", style="bold"))
        if isinstance(phase, ProbePhase):
            _print_probes(phase, console)
        else:
            for job in phase.jobs:
                console.print(
                    Text(f"  {job_text(job.job.model_dump(mode='json', exclude_none=True))}")
                )
        if faults := fault_rows(phase):
            span_ns = _span_ns(phase, faults)
            console.print(picture(faults, span_ns, _ascii(console), _width(faults, console)))
        if expectations := phase.spec.expect.expectations():
            console.print(_expectation_table(expectations))


def _print_probes(phase: ProbePhase, console: Console) -> None:
    traffic, measure = phase.traffic, phase.spec.measure
    console.print(
        Text(
            f"traffic   {traffic.pattern} of {traffic.flows} flows, each "
            f"{traffic.rate_pps:,} packets/s with {traffic.payload}B of RoCE payload, "
            f"{format_duration(traffic.duration)} after {format_duration(traffic.warmup)} of "
            "warm-up\n"
            f"measured  throughput every {format_duration(measure.sampling_interval)}; recovered "
            f"is what stays so for {format_duration(measure.sustained)}; losses count for "
            f"{format_duration(measure.event_window)} after an event"
        )
    )
    if phase.spec.compare_hashing:
        plans = ", ".join(phase.spec.compare_hashing)
        console.print(Text(f"before    the same flows undisturbed, with seeds {plans}"))


def _span_ns(phase: PlannedPhase, rows: Sequence[FaultRow]) -> int:
    """The time that a picture of faults shows: that of the probes, or slightly more than the last
    change, because the end of jobs is unknown."""
    if isinstance(phase, ProbePhase):
        return phase.traffic.duration
    spans = [span for row in rows for span in row.spans]
    last_ns = max(span.begins_ns if span.ends_ns is None else span.ends_ns for span in spans)
    return max(_LEAST_SPAN_NS, last_ns * 5 // 4)


def _ascii(console: Console) -> bool:
    return console.options.ascii_only


def _width(rows: Sequence[FaultRow], console: Console) -> int:
    """The columns that the names leave for the picture."""
    names = max(len(row.kind) + len(row.subject) for row in rows) + 8
    return max(_MIN_PICTURE, min(MAX_PICTURE, console.width - names))


def picture(
    rows: Sequence[FaultRow], span_ns: int, plain: bool = False, width: int = MAX_PICTURE
) -> Table:
    """A row per fault, with a bar while it is active; time runs from 0 to `span_ns`.

    `plain` draws it in ASCII. A time shorter than a column still fills one.
    """
    shown = table("", ["fault", "of", scale(span_ns, width)], left=3, names=2)
    shown.columns[-1].no_wrap = True
    for row in rows:
        shown.add_row(row.kind, row.subject, bar(row.spans, span_ns, width, plain))
    return shown


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
    end = format_duration(span_ns)
    text = "0"
    for tick in range(1, _TICKS):
        place = tick * width // _TICKS
        label = format_duration(span_ns * tick / _TICKS)
        if len(text) < place and place + len(label) < width - len(end):
            text = text.ljust(place) + label
    return text.ljust(width - len(end)) + end


def _expectation_table(expectations: Sequence[Expectation]) -> Table:
    shown = table("", ["expected", "", "meaning"], left=3)
    for expectation in expectations:
        kpi = KPIS[expectation.kpi]
        shown.add_row(kpi.title, expectation.written, kpi.meaning)
    return shown
