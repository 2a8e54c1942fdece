"""Whether a drill's new result is worse than an older one, figure by figure.

Holm's method (Scandinavian Journal of Statistics 6, 1979) keeps the probability that any figure
that did not change is called worse below `alpha`, however many figures are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rocelab.base.errors import InputError
from rocelab.base.statistics import least_rank_sum_p
from rocelab.base.wording import listed
from rocelab.results.difference import (
    ALPHA,
    DrillDiff,
    FigureDiff,
    Finding,
    Side,
    ValueChange,
    VerdictDiff,
)
from rocelab.results.kpi import Better
from rocelab.results.kpis import KPIS

SCHEMA_VERSION = 1


class GateOutcome(StrEnum):
    """What a comparison says of a figure, and all of them of the drill."""

    PASSED = "passed"
    WORSE = "worse"
    UNKNOWN = "cannot tell"


@dataclass(frozen=True, slots=True)
class GatedFigure:
    """A figure in both results, and what the comparison says of it."""

    difference: FigureDiff
    outcome: GateOutcome
    threshold: float | None
    """The p-value below which it is worse; None if one side did not measure it or nothing
    differs."""
    why: str | None = None
    """What is missing where it cannot be told."""


@dataclass(frozen=True, slots=True)
class Gate:
    """The comparison of two results of the drill `name`."""

    schema_version: int
    name: str
    alpha: float
    outcome: GateOutcome
    old: Side
    new: Side
    figures: tuple[GatedFigure, ...]
    unmet: tuple[VerdictDiff, ...]
    """Expectations that the old result met and the new one does not."""
    environment: tuple[ValueChange, ...]
    """What differs of the machine and its software."""


def gate(difference: DrillDiff, kpis: Sequence[str] = ()) -> Gate:
    """Compare the figures `kpis`; if none are named, those that the drill states expectations of,
    or else all that have a better direction. Raises InputError for a name that the results do not
    have, or whose better direction is not known."""
    chosen = _chosen(difference, kpis)
    figures = tuple(gated_figures(chosen))
    unmet = tuple(
        verdict
        for verdict in difference.verdicts
        if verdict.old is not None
        and verdict.new is not None
        and verdict.old.passed
        and not verdict.new.passed
    )
    return Gate(
        schema_version=SCHEMA_VERSION,
        name=difference.name,
        alpha=ALPHA,
        outcome=_outcome(figures, unmet, difference),
        old=difference.old,
        new=difference.new,
        figures=figures,
        unmet=unmet,
        environment=difference.environment,
    )


def _outcome(
    figures: Sequence[GatedFigure], unmet: Sequence[VerdictDiff], difference: DrillDiff
) -> GateOutcome:
    if _failed_early(difference.new) and not _failed_early(difference.old):
        return GateOutcome.WORSE
    outcomes = {figure.outcome for figure in figures}
    missed = [verdict.new.observed for verdict in unmet if verdict.new is not None]
    if GateOutcome.WORSE in outcomes or any(observed is not None for observed in missed):
        return GateOutcome.WORSE
    return GateOutcome.UNKNOWN if GateOutcome.UNKNOWN in outcomes or missed else GateOutcome.PASSED


def _failed_early(side: Side) -> bool:
    """Whether its drill ended early for a failure of the lab."""
    return side.ended_early is not None and side.ended_early.failed


def _chosen(difference: DrillDiff, kpis: Sequence[str]) -> list[FigureDiff]:
    directed = [
        figure
        for figure in difference.figures
        if figure.kpi in KPIS and KPIS[figure.kpi].better is not None
    ]
    for kpi in kpis:
        _check(kpi, difference, {figure.kpi for figure in directed})
    expected = {verdict.kpi for verdict in difference.verdicts}
    names = set(kpis) or expected & {figure.kpi for figure in directed}
    return [figure for figure in directed if not names or figure.kpi in names]


def _check(kpi: str, difference: DrillDiff, directed: set[str]) -> None:
    if kpi in directed:
        return
    if any(figure.kpi == kpi for figure in difference.figures):
        raise InputError(
            f"{kpi} has no better direction: neither more nor less of it is worse",
            hint="state an expectation of it in the drill",
        )
    raise InputError(
        f"the results of {difference.name} have no figure {kpi}",
        hint=f"they have {listed(sorted(directed), 'and')}",
    )


def gated_figures(figures: Sequence[FigureDiff]) -> Iterator[GatedFigure]:
    """The outcome of each figure, all of them tested together."""
    thresholds = _thresholds(figures)
    tested = sum(_is_tested(figure) for figure in figures)
    for number, figure in enumerate(figures):
        threshold = thresholds.get(number)
        outcome, why = _compared(figure, threshold, tested)
        yield GatedFigure(figure, outcome, threshold, why)


def _compared(
    figure: FigureDiff, threshold: float | None, tested: int
) -> tuple[GateOutcome, str | None]:
    if figure.finding is Finding.NOT_MEASURED:
        side = "the new" if figure.new is None else "the old"
        return GateOutcome.UNKNOWN, f"{side} result did not measure it"
    if threshold is None or figure.p_value is None:
        return GateOutcome.PASSED, None
    repeats = len(figure.old_values), len(figure.new_values)
    if least_rank_sum_p(*repeats) >= ALPHA / tested:
        return GateOutcome.UNKNOWN, f"{repeats[0]} and {repeats[1]} repeats are too few"
    worse = Finding.HIGHER if KPIS[figure.kpi].better is Better.LOWER else Finding.LOWER
    is_worse = figure.p_value < threshold and figure.finding is worse
    return GateOutcome.WORSE if is_worse else GateOutcome.PASSED, None


def _is_tested(figure: FigureDiff) -> bool:
    return figure.finding not in (Finding.NOT_MEASURED, Finding.SAME)


def _thresholds(figures: Sequence[FigureDiff]) -> dict[int, float]:
    """By number of the figure: the p-value that it must be below. From the smallest p-value on
    these are alpha / m, alpha / (m - 1) ...; once one is not below, no later one is."""
    ordered = sorted(
        (number for number, figure in enumerate(figures) if _is_tested(figure)),
        key=lambda number: figures[number].p_value or 0.0,
    )
    thresholds: dict[int, float] = {}
    threshold, is_over = 0.0, False
    for left, number in zip(range(len(ordered), 0, -1), ordered, strict=True):
        if not is_over:
            threshold = ALPHA / left
            is_over = (figures[number].p_value or 0.0) >= threshold
        thresholds[number] = threshold
    return thresholds
