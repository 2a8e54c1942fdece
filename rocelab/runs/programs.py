"""Runs programs on a lab that is up, with faults meanwhile, and reads the figures that they
print."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import CLOCK_REALTIME, clock_gettime_ns

from rocelab.base.progress import Progress, ProgressSink
from rocelab.base.quantities import duration
from rocelab.faults.base import Timed
from rocelab.faults.injector import Injector
from rocelab.faults.timetable import carried_out, events_of, prepare_first
from rocelab.lab.lab import RunningLab
from rocelab.programs.ranks import RankedProgram
from rocelab.programs.run import ProgramSession
from rocelab.programs.running import OutputLine
from rocelab.results.probes import rebased
from rocelab.results.programs import MetricSeries, ProgramReport, ProgramsRun

LAST_LINES = 3
_MOST_QUOTED = 40
MOST_APART_NS = 10**9
"""Samples of connections that are further apart leave too much of a drill unseen."""

_NS_PER_S = 10**9


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure in what programs print: `pattern` has one group, the number; `rank` None for all."""

    name: str
    pattern: re.Pattern[str]
    unit: str
    rank: int | None


@dataclass(frozen=True, slots=True)
class Course:
    """When programs are ready, how long they run after that (None: until they end), and how long
    all may take. Times in ns."""

    ready: re.Pattern[str] | None
    duration_ns: int | None
    limit_ns: int


@dataclass(slots=True)
class _Listener:
    """Reads the lines of programs as they come."""

    metrics: Sequence[Metric]
    ready: re.Pattern[str] | None
    ready_ns: int | None = None
    points: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    no_numbers: dict[str, str] = field(default_factory=dict)
    """Of each metric the first text that is no number, or none that a figure can be made of."""

    last: dict[int, list[str]] = field(default_factory=dict)
    """The last lines of each rank."""

    def hear(self, line: OutputLine) -> None:
        if self.ready_ns is None and self.ready is not None and self.ready.search(line.text):
            self.ready_ns = line.at_ns
        for metric in self.metrics:
            if metric.rank in (None, line.rank) and (match := metric.pattern.search(line.text)):
                self._read(metric.name, match[1], line.at_ns)
        lines = self.last.setdefault(line.rank, [])
        lines.append(line.text)
        del lines[:-LAST_LINES]

    def _read(self, name: str, text: str | None, at_ns: int) -> None:
        try:
            value = float(text or "")
        except ValueError:
            value = math.nan
        if math.isfinite(value):
            self.points.setdefault(name, []).append((at_ns, value))
        else:
            self.no_numbers.setdefault(name, (text or "")[:_MOST_QUOTED])

    def series(self, zero_ns: int) -> tuple[MetricSeries, ...]:
        return tuple(
            MetricSeries(
                metric.name,
                metric.unit,
                tuple(
                    (at_ns - zero_ns, value) for at_ns, value in self.points.get(metric.name, ())
                ),
            )
            for metric in self.metrics
        )


def run_programs_under_faults(
    lab: RunningLab,
    programs: Sequence[RankedProgram],
    *,
    folder: Path,
    course: Course,
    metrics: Sequence[Metric],
    faults: Sequence[Timed],
    progress: ProgressSink,
) -> ProgramsRun:
    """Run programs, with faults at their times after the programs were ready. A program that fails
    is a figure of the run; one that never was ready, or a fault that came too late, makes it
    invalid. Raises as the faults do, and MachineError if programs cannot be started."""
    listener = _Listener(metrics, course.ready)
    problems: list[str] = []
    with (
        lab.locked(),
        Injector(lab) as injector,
        ProgramSession(lab, programs, folder=folder, on_line=listener.hear) as session,
    ):
        prepared = prepare_first(injector, faults)
        limit_ns = session.began_ns + course.limit_ns
        if course.ready is not None:
            progress(Progress("programs start", 0, 1))
            session.run_until(lambda: listener.ready_ns is not None or _now_ns() > limit_ns)
            if listener.ready_ns is None:
                problems.append(_never_ready(session, course, listener.last))
        zero_ns = listener.ready_ns or _now_ns()
        end_ns = limit_ns if course.duration_ns is None else zero_ns + course.duration_ns
        if not problems:
            with carried_out(injector, faults, zero_ns, prepared) as of_faults:
                session.run_until(_Clock(zero_ns, end_ns, faults, progress))
            problems += of_faults
        if not session.is_over:
            session.stop()
            if course.duration_ns is None and not problems:
                problems.append(
                    f"not valid because programs had not ended after {duration(course.limit_ns)} "
                    "(traffic.limit)"
                )
        events = tuple(
            rebased(event, zero_ns) for event in events_of(injector.happened(), apart_ns=1)
        )
        report = session.report(zero_ns)
        problems += unsound(report, listener.no_numbers, clock_was_set=session.clock_was_set)
        injector.restore_all()
        problems += injector.unseen
    return ProgramsRun(tuple(problems), report, events, listener.series(zero_ns))


def unsound(
    report: ProgramReport, no_numbers: Mapping[str, str], *, clock_was_set: bool
) -> Iterator[str]:
    """Why figures of a run would not be what they seem. `no_numbers`: of each metric what programs
    printed in the place of a number."""
    if clock_was_set:
        yield "not valid because this machine's clock was set during the run"
    if report.connections and report.longest_interval_ns > MOST_APART_NS:
        yield (
            "not valid because this machine was too busy to read the connections for "
            f"{duration(report.longest_interval_ns)}: what they did then is not known"
        )
    for name, text in no_numbers.items():
        yield f"not valid because programs printed {text!r} as a value of metric {name}"


class _Clock:
    """Whether the time of programs is over; shows the progress until then."""

    def __init__(
        self, zero_ns: int, end_ns: int, faults: Sequence[Timed], progress: ProgressSink
    ) -> None:
        self._zero_ns, self._end_ns, self._progress = zero_ns, end_ns, progress
        self._total_s = (end_ns - zero_ns) // _NS_PER_S
        self._told_s = -1

    def __call__(self) -> bool:
        now_ns = _now_ns()
        done_s = (now_ns - self._zero_ns) // _NS_PER_S
        if done_s != self._told_s:
            self._told_s = done_s
            self._progress(Progress("programs", min(done_s, self._total_s), self._total_s))
        return now_ns > self._end_ns


def _never_ready(session: ProgramSession, course: Course, last: Mapping[int, list[str]]) -> str:
    assert course.ready is not None
    when = "before they ended" if session.is_over else f"within {duration(course.limit_ns)}"
    said = "; ".join(line.strip() for line in last.get(0, ())) or "nothing"
    return (
        f"not valid because no program wrote a line with {course.ready.pattern!r} {when}; "
        f"the first last said: {said}"
    )


def _now_ns() -> int:
    return clock_gettime_ns(CLOCK_REALTIME)
