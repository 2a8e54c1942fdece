"""What changed between two results of the same drill: figures, verdicts, machine, drill and lab.

A frozen `DrillDiff` is written as JSON; docs/documents/ is generated from it. Nothing is measured
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rocelab.base.errors import InputError
from rocelab.base.statistics import Spread, least_rank_sum_p, rank_sum_p, spread
from rocelab.results.drill import DrillResult, EndedEarly, read_drill_result
from rocelab.results.expectations import Verdict
from rocelab.results.kpi import UNITS, Figures, Quantity
from rocelab.results.kpis import KPIS, kpis_of

SCHEMA_VERSION = 1
ALPHA = 0.05
"""A difference is significant if chance alone makes it in fewer than one of twenty comparisons."""


class Finding(StrEnum):
    """The result of comparing a figure over two sets of repeats. `too few`: the test cannot find a
    difference between so few repeats; `not measured`: by at least one side."""

    HIGHER = "higher"
    LOWER = "lower"
    SAME = "same"
    NOT_TOLD_APART = "not told apart"
    TOO_FEW = "too few repeats"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two results: its file, when it began, its number of repeats."""

    path: str
    started: str
    repeats: int
    valid_repeats: int
    passed: bool
    ended_early: EndedEarly | None = None
    """None if its drill was not interrupted."""


@dataclass(frozen=True, slots=True)
class FigureDiff:
    """A KPI in both results, over the valid repeats that measured it, in `unit`."""

    phase: str | None
    """None if the drill has only one."""
    job: int | None
    """Its number if the phase has several."""
    kpi: str
    unit: str
    old_values: tuple[float, ...]
    """Repeat by repeat, truths as 0 and 1; their spread is None without values."""
    new_values: tuple[float, ...]
    """Repeat by repeat, truths as 0 and 1; their spread is None without values."""
    old_resolution_ns: float
    """Of durations: a value that is not above it is only known to be below it. Else 0."""
    new_resolution_ns: float
    """Of durations: a value that is not above it is only known to be below it. Else 0."""
    old: Spread | None
    new: Spread | None
    difference: float | None
    """New median minus old."""
    p_value: float | None
    """By `rocelab.base.statistics.rank_sum_p`."""
    apart: bool
    """No value of one lies within the other's extremes."""
    finding: Finding


@dataclass(frozen=True, slots=True)
class VerdictDiff:
    """An expectation in both results; None if one does not state it."""

    phase: str | None
    kpi: str
    old: Verdict | None
    new: Verdict | None
    old_resolution_ns: float = 0.0
    """As that of a `FigureDiff`."""
    new_resolution_ns: float = 0.0
    """As that of a `FigureDiff`."""

    @property
    def changed(self) -> bool:
        """Whether its statement or its outcome differs."""
        if self.old is None or self.new is None:
            return True
        before, after = ((side.expectation, side.passed) for side in (self.old, self.new))
        return before != after


@dataclass(frozen=True, slots=True)
class ValueChange:
    """A value that differs, by its key path; None if missing."""

    key: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class DrillDiff:
    """Everything that differs between two results of the drill `name`, and every figure."""

    schema_version: int
    name: str
    alpha: float
    old: Side
    new: Side
    figures: tuple[FigureDiff, ...]
    verdicts: tuple[VerdictDiff, ...]
    environment: tuple[ValueChange, ...]
    drill: tuple[ValueChange, ...]
    lab: tuple[ValueChange, ...]


def difference(old_path: Path, new_path: Path) -> DrillDiff:
    """What changed from one result to the other. Raises InputError if one cannot be read or if they
    are of different drills."""
    old, new = read_drill_result(old_path), read_drill_result(new_path)
    if old.name != new.name:
        raise InputError(
            f"results of different drills: {old_path} is of {old.name}, {new_path} of {new.name}",
            hint="give two results of one drill",
        )
    return DrillDiff(
        schema_version=SCHEMA_VERSION,
        name=new.name,
        alpha=ALPHA,
        old=_side(old, old_path),
        new=_side(new, new_path),
        figures=tuple(_figures(old, new)),
        verdicts=tuple(_verdicts(old, new)),
        environment=tuple(
            change
            for change in changes(_environment(old), _environment(new))
            if change.key != "started"
        ),
        drill=tuple(changes(old.drill, new.drill)),
        lab=tuple(changes(old.lab, new.lab)),
    )


def compared(
    old: Sequence[float], new: Sequence[float]
) -> tuple[float | None, float | None, bool, Finding]:
    """For one figure's values: the difference of medians, the p-value, whether their extremes leave
    a gap, and the finding."""
    if not old or not new:
        return None, None, False, Finding.NOT_MEASURED
    before, after = spread(old), spread(new)
    gap = after.median - before.median
    apart = before.maximum < after.minimum or after.maximum < before.minimum
    p_value = rank_sum_p(old, new)
    if len({*old, *new}) == 1:
        finding = Finding.SAME
    elif p_value >= ALPHA:
        few = least_rank_sum_p(len(old), len(new)) >= ALPHA
        finding = Finding.TOO_FEW if few else Finding.NOT_TOLD_APART
    else:
        # By ranks, as in the test: medians may be equal, or even differ the other way.
        above = sum((b > a) - (b < a) for a in old for b in new)
        finding = Finding.HIGHER if above > 0 else Finding.LOWER
    return gap, p_value, apart, finding


def changes(old: object, new: object, key: str = "") -> Iterator[ValueChange]:
    """The differences of two JSON values, by keys such as `fabric.racks` and `faults[0].at`."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in dict.fromkeys((*old, *new)):
            yield from changes(old.get(name), new.get(name), f"{key}.{name}" if key else str(name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for place, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changes(before, after, f"{key}[{place}]")
    elif old != new:
        yield ValueChange(key, old, new)


def _side(result: DrillResult, path: Path) -> Side:
    repeats, valid = len(result.repeats), len(result.valid_repeats)
    return Side(
        str(path),
        result.environment.started,
        repeats,
        valid,
        result.passed,
        result.ended_early,
    )


def _environment(result: DrillResult) -> dict[str, object]:
    """The machine, memory in whole GiB: the kernel's own share differs a little."""
    values: dict[str, object] = asdict(result.environment)
    values["memory_gib"] = round(result.environment.memory_bytes / 2**30)
    for name in ("memory_bytes", "command"):
        del values[name]
    values["notes"] = list(result.notes)
    return values


_Place = tuple[str | None, int | None]


def _values(result: DrillResult) -> dict[_Place, list[Figures]]:
    """The figures of each valid run, by phase and job."""
    by_place: dict[_Place, list[Figures]] = {}
    for phase in result.phases:
        for run in result.runs_of(phase.name):
            figures = run.figures() if run.valid else ()
            for number, of_job in enumerate(figures, 1):
                job = number if len(figures) > 1 else None
                by_place.setdefault((result.where(phase.name) or None, job), []).append(of_job)
    return by_place


def _figures(old: DrillResult, new: DrillResult) -> Iterator[FigureDiff]:
    """Every figure that one side measured."""
    before, after = _values(old), _values(new)
    for place in dict.fromkeys((*before, *after)):
        names = (
            name for side in (before, after) for of_run in side.get(place, ()) for name in of_run
        )
        for kpi in kpis_of(names):
            old_values, new_values = (
                _measured(side.get(place, ()), kpi.name) for side in (before, after)
            )
            if old_values or new_values:
                gap, p_value, apart, finding = compared(old_values, new_values)
                yield FigureDiff(
                    phase=place[0],
                    job=place[1],
                    kpi=kpi.name,
                    unit=UNITS[kpi.quantity],
                    old_values=old_values,
                    new_values=new_values,
                    old_resolution_ns=_resolution_ns(old, place[0], kpi.name),
                    new_resolution_ns=_resolution_ns(new, place[0], kpi.name),
                    old=spread(old_values) if old_values else None,
                    new=spread(new_values) if new_values else None,
                    difference=gap,
                    p_value=p_value,
                    apart=apart,
                    finding=finding,
                )


def _resolution_ns(result: DrillResult, phase: str | None, kpi: str) -> float:
    """That of a phase's times; 0 of what is no time."""
    is_time = KPIS[kpi].quantity is Quantity.DURATION
    return result.resolution_of(phase or result.name) if is_time else 0.0


def _measured(repeats: Iterable[Figures], kpi: str) -> tuple[float, ...]:
    values = (repeat.get(kpi) for repeat in repeats)
    return tuple(float(value) for value in values if isinstance(value, int | float))


def _verdicts(old: DrillResult, new: DrillResult) -> Iterator[VerdictDiff]:
    before, after = _stated(old), _stated(new)
    for phase, kpi in dict.fromkeys((*before, *after)):
        yield VerdictDiff(
            phase,
            kpi,
            before.get((phase, kpi)),
            after.get((phase, kpi)),
            _resolution_ns(old, phase, kpi),
            _resolution_ns(new, phase, kpi),
        )


def _stated(result: DrillResult) -> dict[tuple[str | None, str], Verdict]:
    return {
        (result.where(phase.name) or None, verdict.kpi): verdict
        for phase in result.phases
        for verdict in phase.verdicts
    }
