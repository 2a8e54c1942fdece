"""Where the time of a simulated job goes: latency, bytes, and what waits; and what failed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from rocelab.base.quantities import Unit, axis_unit, duration, ratio, share
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import headline_card, sentence
from rocelab.report.document import MOST_FIGURES, Answer, Card, Figure
from rocelab.report.palette import BOUND, EXCESS, GRID, LATENCY
from rocelab.report.plots import add_key, figure_of, name_axis, styled
from rocelab.report.served import served_clause
from rocelab.report.simulation import plots
from rocelab.results.simulation import JobOutcome, SimulatedEvent, SimulationReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

LEAST_OF_MEAN = 1.2
LEAST_PART = 0.05
"""A smaller part of an iteration is not worth a clause."""

LEAST_LONGER = 1.5
"""An iteration that takes so many times the median is far longer."""

_HAPPENED = {
    "fail": "failed",
    "blackhole": "dropped everything",
    "drain": "was drained",
    "crash": "crashed",
    "degrade": "got slower",
}
"""The verbs of events, as they are told afterwards."""

MOST_JOBS = 12

_FIRST = ("iteration_time", "busbw", "latency", "jct_ratio")


@dataclass(frozen=True, slots=True)
class TimeParts:
    """The parts of a job's iteration (the median), in ns: latency of its sends, the bytes of the
    busiest NIC at its rate, and the rest: bytes that wait, and latency that is not known apart."""

    job: str
    whole_ns: float
    latency_ns: float
    bound_ns: float

    @property
    def rest_ns(self) -> float:
        return max(0.0, self.whole_ns - self.latency_ns - self.bound_ns)


def time_parts(report: SimulationReport) -> list[TimeParts]:
    """Of each job that ends."""
    parts = []
    for job in report.jobs:
        medians = {headline.name: headline.modelled.median for headline in job.headlines}
        if "iteration_time" in medians:
            latency_ns = medians.get("latency", 0.0)
            whole_ns = medians["iteration_time"]
            parts.append(TimeParts(job.name, whole_ns, latency_ns, job.roofline_ns))
    return parts


def simulation_answer(report: SimulationReport) -> Answer:
    """The answer of a simulation, about the job that is longest over its lower bound."""
    worst = max(report.jobs, key=_bound_ratio)
    # A load that is uneven is not what holds up a job that waits for a failure.
    busiest = "" if _is_silent(report) else _busiest(report, worst)
    reached = f"{report.method.hosts}: {_reached(report, worst)}"
    text = sentence(reached, busiest, _lost(report), *_events(report))
    if report.events:
        plot = Figure("answer", partial(plots.rates, report))
    else:
        plot = Figure("answer", partial(parts_plot, report))
    return Answer(text, _cards(report, worst), plot)


def _is_silent(report: SimulationReport) -> bool:
    return plots.long_silence_ns(report) is not None


def _bound_ratio(job: JobOutcome) -> float:
    if None in job.iterations_ns:
        return float("inf")
    return max(
        (one.modelled.median for one in job.headlines if one.name == "jct_ratio"), default=0.0
    )


def _median(job: JobOutcome, name: str) -> float | None:
    return next((one.modelled.median for one in job.headlines if one.name == name), None)


def _reached(report: SimulationReport, job: JobOutcome) -> str:
    which = f"{job.name} over {counted(job.ranks, 'rank')}"
    if len(report.jobs) > 1:
        which = f"of {len(report.jobs)} jobs {which} is furthest from its lower bound"
    if None in job.iterations_ns:
        return f"{job.name} over {counted(job.ranks, 'rank')} never ends"
    if job.served is not None:
        return f"{which}: {served_clause(job.served)}"
    time_ns, over = _median(job, "iteration_time"), _median(job, "jct_ratio")
    if time_ns is None:
        return ""
    bound = "" if over is None else f", {ratio(over)} times its lower bound"
    return (
        f"{which}: {duration(time_ns)} an iteration{_latency(job, time_ns)}{bound}{_longest(job)}"
    )


def _latency(job: JobOutcome, time_ns: float) -> str:
    """`, 137 ms of it latency (76.5%), not bytes`; empty if it is not known or next to nothing."""
    latency_ns = _median(job, "latency") or 0.0
    if latency_ns < LEAST_PART * time_ns:
        return ""
    not_bytes = ", not bytes" if latency_ns > time_ns / 2 else ""
    return f", {duration(latency_ns)} of it latency ({share(latency_ns / time_ns)}){not_bytes}"


def _longest(job: JobOutcome) -> str:
    """`, but 4.3 s in 1 of 3`: the iterations that took far longer than the median."""
    times_ns = [time for time in job.iterations_ns if time is not None]
    far = [time for time in times_ns if time > LEAST_LONGER * (_median(job, "iteration_time") or 0)]
    if not far:
        return ""
    return f", but up to {duration(max(far))} in {len(far)} of {len(times_ns)}"


def _busiest(report: SimulationReport, job: JobOutcome) -> str:
    """The busiest link, if the job takes longer than its bytes and latency need."""
    if not report.worst or report.worst[0].of_mean < LEAST_OF_MEAN:
        return ""
    parts = [part for part in time_parts(report) if part.job == job.name]
    if parts and parts[0].rest_ns < LEAST_PART * parts[0].whole_ns:
        return "no link holds it back"
    link = report.worst[0]
    return f"link {link.link} carries {ratio(link.of_mean)} times the mean of its tier"


def _lost(report: SimulationReport) -> str:
    counts = report.packets
    if counts is None or not counts.drops + counts.lost:
        return ""
    return f"{counted(counts.drops + counts.lost, 'packet')} dropped or lost"


def _events(report: SimulationReport) -> Iterator[str]:
    if not report.events:
        return
    first, more = report.events[0], len(report.events) - 1
    also = f" and {counted(more, 'other event')} happened" if more else ""
    yield f"{_happened(first)}{also}"
    waits = [
        event.routed_ns - event.start_ns for event in report.events if event.routed_ns is not None
    ]
    if waits:
        yield f"routed around after {duration(max(waits))}"
    if (silence := plots.long_silence_ns(report)) is not None:
        yield f"nothing was sent for {duration(silence[1] - silence[0])}"


def _happened(event: SimulatedEvent) -> str:
    """`link rtsw1:ctsw2 failed at 5 ms for 2 ms`."""
    verb, _, target = event.what.partition(" ")
    lasted = "" if event.end_ns is None else f" for {duration(event.end_ns - event.start_ns)}"
    happened = f"{target} {_HAPPENED[verb]}" if verb in _HAPPENED else event.what
    return f"{happened} at {duration(event.start_ns)}{lasted}"


def _cards(report: SimulationReport, job: JobOutcome) -> tuple[Card, ...]:
    by_name = {headline.name: headline for headline in job.headlines}
    cards = [headline_card(by_name[name]) for name in _FIRST if name in by_name]
    if report.worst:
        cards.append(Card("Busiest link over the mean", ratio(report.worst[0].of_mean)))
    if report.flow_times is not None:
        cards.append(Card("Slowdown of flows, p99", ratio(report.flow_times.slowdown.p99)))
    return tuple(cards[:MOST_FIGURES])


LEAST_SEEN = 0.002
"""A part that is shorter than that share of the longest bar is not in its key: it is not seen."""


@styled
def parts_plot(report: SimulationReport) -> Drawing | None:
    """A bar per job: the latency, the bytes at the rate of its busiest NIC, and the wait; those
    longest over their bound. None without a job that ends."""
    parts = sorted(time_parts(report), key=lambda part: -part.rest_ns)[:MOST_JOBS]
    if not parts:
        return None
    figure = figure_of(11, 1.1 + 0.3 * len(parts))
    axis = figure.subplots()
    scale, unit = axis_unit(max(part.whole_ns for part in parts), Unit.NS)
    left = np.zeros(len(parts))
    bounds = [min(part.bound_ns, max(0.0, part.whole_ns - part.latency_ns)) for part in parts]
    for colour, label, lengths in (
        (LATENCY, "latency", [part.latency_ns for part in parts]),
        (BOUND, "bytes, at the rate of the busiest NIC (lower bound)", bounds),
        (EXCESS, "longer than that", [part.rest_ns for part in parts]),
    ):
        widths = np.array(lengths) / scale
        axis.barh(range(len(parts)), widths, left=left, color=colour, height=0.6)
        left += widths
        if widths.max() > LEAST_SEEN * max(part.whole_ns for part in parts) / scale:
            axis.plot([], [], color=colour, linewidth=7, label=label)
    axis.set_yticks(range(len(parts)), [part.job for part in parts])
    axis.set_ylim(len(parts) - 0.4, -0.6)
    axis.tick_params(axis="y", length=0)
    axis.set_xlim(left=0)
    name_axis(axis.xaxis, "time of an iteration", unit)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    add_key(figure)
    return figure
