"""The answer of two results of a drill: what differs beyond chance, and which way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rocelab.base.quantities import change
from rocelab.base.statistics import least_rank_sum_p
from rocelab.base.wording import counted, listed
from rocelab.report.answers.clauses import sentence
from rocelab.report.document import MOST_FIGURES, Answer, Card, Figure, Tone, Toned
from rocelab.report.palette import GRID, INK, MEASURED, MUTED
from rocelab.report.plots import add_key, figure_of, name_axis, styled
from rocelab.report.repeats import HEADLINES
from rocelab.results.difference import DrillDiff, FigureDiff, Finding, VerdictDiff
from rocelab.results.kpi import Better, Quantity
from rocelab.results.kpis import KPIS, format_kpi

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

DIFFERENT = (Finding.HIGHER, Finding.LOWER)
MOST_ROWS = 10
"""Figures of the plot."""

MOST_NAMED = 3
"""Figures that the sentence names."""


def difference_answer(diff: DrillDiff) -> Answer:
    """The answer; without a valid repeat on either side only that nothing can be compared."""
    if not diff.old.valid_repeats or not diff.new.valid_repeats:
        side = "old" if not diff.old.valid_repeats else "new"
        return Answer(f"Nothing can be compared: no repeat of the {side} result is valid.")
    ordered = by_weight(diff.figures)
    text = sentence(
        _differences(diff, ordered),
        *_expectations(diff.verdicts),
        "the drill or the lab changed, so the two are not the same experiment"
        if diff.drill or diff.lab
        else "",
    )
    cards = tuple(_card(figure) for figure in ordered if figure.old and figure.new)
    return Answer(text, cards[:MOST_FIGURES], Figure("answer", partial(repeats_plot, diff)))


def verdict_of(diff: DrillDiff) -> Toned:
    """`2 of 9 figures differ`, or why that is not known. It says nothing of better or worse: each
    figure is tested on its own, and `rocelab drill gate` judges all together."""
    if not diff.old.valid_repeats or not diff.new.valid_repeats:
        return Toned("not comparable", Tone.CAUTION)
    different = sum(figure.finding in DIFFERENT for figure in diff.figures)
    if different:
        verb = "differs" if different == 1 else "differ"
        return Toned(f"{different} of {len(diff.figures)} figures {verb}", Tone.STRONG)
    if _too_few(diff):
        return Toned("too few repeats", Tone.CAUTION)
    return Toned("no figure differs", Tone.STRONG)


def is_better(figure: FigureDiff) -> bool | None:
    """Whether a figure that differs is better; None if neither direction of it is."""
    better = KPIS[figure.kpi].better
    if better is None:
        return None
    return (figure.finding is Finding.HIGHER) == (better is Better.HIGHER)


def by_weight(figures: Sequence[FigureDiff]) -> list[FigureDiff]:
    """Figures that differ first, of these the ones that lead a report, in its order; without those
    that are equal and those of one side only."""
    places = {kpi: place for place, kpi in enumerate(HEADLINES)}

    def weight(figure: FigureDiff) -> tuple[bool, int]:
        return (figure.finding not in DIFFERENT, places.get(figure.kpi, len(places)))

    present = [one for one in figures if one.old is not None and one.new is not None]
    return sorted((one for one in present if one.finding is not Finding.SAME), key=weight)


def _too_few(diff: DrillDiff) -> bool:
    return least_rank_sum_p(diff.old.valid_repeats, diff.new.valid_repeats) >= diff.alpha


def _differences(diff: DrillDiff, ordered: Sequence[FigureDiff]) -> str:
    """`packets lost rose from 387 to 454 (+17%, p = 0.008), ...; 5 other figures are not told
    apart`."""
    different = [figure for figure in ordered if figure.finding in DIFFERENT]
    repeats = f"{diff.old.valid_repeats} and {counted(diff.new.valid_repeats, 'repeat')}"
    if not different:
        if not ordered:
            return f"all figures are the same in {repeats}"
        if _too_few(diff):
            return f"{repeats} are too few to tell a difference from chance"
        return f"no figure differs beyond chance in {repeats}"
    named = listed([_moved(figure) for figure in different[:MOST_NAMED]], "and")
    more = len(different) - MOST_NAMED
    return named + (f"; {counted(more, 'more figure')} differ" if more > 0 else "")


def _moved(figure: FigureDiff) -> str:
    assert figure.old is not None
    assert figure.new is not None
    title = _in_sentence(figure.kpi)
    where = f" in {figure.phase}" if figure.phase else ""
    p_value = "" if figure.p_value is None else f", p = {figure.p_value:.3f}"
    if KPIS[figure.kpi].quantity is Quantity.TRUTH:
        before, after = (f"{sum(of):.0f} of {len(of)}" for of in _values(figure))
        return f"{title}{where} is yes in {after} repeats, before in {before}"
    moved = "rose" if figure.finding is Finding.HIGHER else "fell"
    before, after = _medians(figure)
    return f"{title}{where} {moved} from {before} to {after}{_change(figure, ' (', p_value + ')')}"


def _in_sentence(kpi: str) -> str:
    """`full convergence`, `CE packets received`."""
    title = KPIS[kpi].title
    return title if title[1:2].isupper() else f"{title[:1].lower()}{title[1:]}"


def _values(figure: FigureDiff) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return figure.old_values, figure.new_values


def _medians(figure: FigureDiff) -> tuple[str, str]:
    assert figure.old is not None
    assert figure.new is not None
    return (
        format_kpi(figure.kpi, figure.old.median, figure.old_resolution_ns),
        format_kpi(figure.kpi, figure.new.median, figure.new_resolution_ns),
    )


def _change(figure: FigureDiff, before: str = "", after: str = "") -> str:
    """`+17%`; empty where the old median is 0 or both are alike."""
    if figure.old is None or not figure.old.median or not figure.difference:
        return ""
    return f"{before}{change(figure.difference / figure.old.median)}{after}"


def _is_lost(verdict: VerdictDiff) -> bool:
    """Whether an expectation that was met is not met any more."""
    met = [side is not None and side.passed for side in (verdict.old, verdict.new)]
    return met == [True, False] and verdict.new is not None


def _expectations(verdicts: Sequence[VerdictDiff]) -> Iterator[str]:
    lost = [_in_sentence(verdict.kpi) for verdict in verdicts if _is_lost(verdict)]
    if lost:
        yield f"no longer met: {listed(lost, 'and')}"
    gained = [
        _in_sentence(verdict.kpi)
        for verdict in verdicts
        if verdict.old is not None and verdict.new is not None
        if verdict.new.passed and not verdict.old.passed
    ]
    if gained:
        yield f"met now: {listed(gained, 'and')}"


def _card(figure: FigureDiff) -> Card:
    title = ", ".join(filter(None, (KPIS[figure.kpi].title, figure.phase)))
    before, after = _medians(figure)
    if KPIS[figure.kpi].quantity is Quantity.TRUTH:
        before, after = (f"{sum(of):.0f} of {len(of)}" for of in _values(figure))
    finding = {True: "better", False: "worse", None: "differs"}[is_better(figure)]
    said = finding if figure.finding in DIFFERENT else str(figure.finding)
    spread = "; ".join(filter(None, (f"{before} before", _change(figure), said)))
    return Card(title, after, spread)


@styled
def repeats_plot(diff: DrillDiff) -> Drawing | None:
    """The values of all repeats over the old median, a row for each figure: the old ones above, the
    new ones below. None without a figure that can be drawn so."""
    rows = [
        figure
        for figure in by_weight(diff.figures)
        if figure.old is not None
        and figure.old.median > 0
        and KPIS[figure.kpi].quantity is not Quantity.TRUTH
    ][:MOST_ROWS]
    if not rows:
        return None
    drawing = figure_of(11, 1.1 + 0.36 * len(rows))
    axis = drawing.subplots()
    for row, figure in enumerate(rows):
        assert figure.old is not None
        for values, shift, marker, colour in (
            (figure.old_values, -0.16, "o", MUTED),
            (figure.new_values, 0.16, "D", MEASURED),
        ):
            over = [value / figure.old.median for value in values]
            places = [row + shift] * len(over)
            axis.hlines(row + shift, min(over), max(over), colors=colour, linewidth=1)
            axis.plot(over, places, marker, color=colour, markersize=4.5, linestyle="")
    for label, marker, colour in (("old", "o", MUTED), ("new", "D", MEASURED)):
        axis.plot([], [], marker, color=colour, markersize=4.5, linestyle="", label=label)
    axis.axvline(1, color=INK, linewidth=0.8, linestyle=(0, (4, 3)))
    names = [", ".join(filter(None, (KPIS[one.kpi].title, one.phase))) for one in rows]
    axis.set_yticks(range(len(rows)), names)
    axis.set_ylim(len(rows) - 0.4, -0.6)
    axis.set_xlim(left=0)
    axis.tick_params(axis="y", length=0)
    name_axis(axis.xaxis, "each repeat, over the old median")
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    add_key(drawing)
    return drawing
