"""What faults did to programs, in words."""

from __future__ import annotations

from rocelab.base.quantities import duration
from rocelab.base.wording import counted
from rocelab.report.answers.events import event_text
from rocelab.results.programs import MetricSeries, ProgramsRun


def stall_clause(run: ProgramsRun) -> str:
    """`cable rtsw1:ctsw2 down: 2 of 6 connections stalled, for up to 1.2 s`; first which programs
    failed, if any did."""
    connections = run.report.connections
    stalled = [connection for connection in connections if connection.stalls]
    begun = [event for event in run.events if event.change == "begin"]
    what = f"{event_text(begun[0])}: " if len(begun) == 1 else ""
    failed = sum(bool(rank.code) for rank in run.report.ranks)
    ended = f"{counted(failed, 'program')} of {len(run.report.ranks)} failed, " if failed else ""
    if not connections:
        return f"{what}{ended}no TCP connection carried anything"
    text = f"{len(stalled)} of {counted(len(connections), 'connection')} stalled"
    if stalled:
        longest_ns = max(connection.longest_stall_ns for connection in stalled)
        text += f", for up to {duration(longest_ns)}"
    return f"{what}{ended}{text}"


def metric_clause(run: ProgramsRun) -> str:
    """`step at most 9.1 s, in the median 0.55 s`, of the first metric; empty without one."""
    if not run.metrics:
        return ""
    series = run.metrics[0]
    values = sorted(series.values)
    if not values:
        return f"no program printed {series.name}"
    median = written(series, values[len(values) // 2])
    return f"{series.name} at most {written(series, values[-1])}, in the median {median}"


def written(series: MetricSeries, value: float) -> str:
    """A value of a metric with its unit."""
    return f"{value:.4g} {series.unit}".strip()
