"""The document of a `DrillDiff`: two results of a drill side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rocelab.base.quantities import Unit, change
from rocelab.base.statistics import Spread, least_rank_sum_p
from rocelab.report.answers.difference import difference_answer, verdict_of
from rocelab.report.document import (
    Block,
    Cell,
    Document,
    Items,
    Note,
    Row,
    Section,
    Table,
    Tone,
    Toned,
    columns,
)
from rocelab.results.difference import DrillDiff, FigureDiff, Finding, Side, ValueChange
from rocelab.results.expectations import Verdict
from rocelab.results.kpi import Quantity
from rocelab.results.kpis import KPIS, format_kpi

ENVIRONMENT = {
    "tool_version": "rocelab",
    "kernel": "kernel",
    "frr_version": "FRR",
    "routing": "routing stack",
    "frr_memory": "FRR's memory",
    "python": "Python",
    "cpu_model": "CPU",
    "cpu_count": "CPUs",
    "memory_gib": "memory, GiB",
    "notes": "done without",
    "plugins": "plug-ins",
}
"""The labels of the parts of a machine."""

_TONES = {
    Finding.HIGHER: Tone.STRONG,
    Finding.LOWER: Tone.STRONG,
    Finding.NOT_MEASURED: Tone.CAUTION,
}


def difference_document(diff: DrillDiff) -> Document:
    """Figures with their spread, the result and limits of the test, and all changes."""
    machine = [(ENVIRONMENT.get(item.key, item.key), item) for item in diff.environment]
    blocks: list[Block] = [
        _changes("The machine and its software, where they differ", machine),
        _changes("The drill, where it differs", [(item.key, item) for item in diff.drill]),
        _changes("The lab, where it differs", [(item.key, item) for item in diff.lab]),
    ]
    if not diff.environment:
        blocks.append(Note("Machine and software are the same."))
    blocks.append(Note(_about_the_test(diff)))
    if diff.drill or diff.lab:
        text = "The drill or the lab changed: the two are not the same experiment."
        blocks.append(Note(text, Tone.CAUTION))
    return Document(
        f"Two results of {diff.name}",
        tuple(blocks),
        name=diff.name,
        verdict=verdict_of(diff),
        kind=f"rocelab drill diff of `{diff.name}`",
        card=difference_answer(diff),
        answer=(
            Items((f"old: {_side(diff.old)}", f"new: {_side(diff.new)}")),
            Section("Figures", (_figures(diff),)),
            _verdicts(diff),
        ),
    )


def _side(side: Side) -> str:
    valid = f"{side.valid_repeats} valid of {side.repeats}"
    verdict = "passed" if side.passed else "failed" if side.valid_repeats else "not measured"
    return f"{side.path}: {side.started}, repeats: {valid}, {verdict}"


def _figures(diff: DrillDiff) -> Table:
    of_jobs = any(figure.phase is not None for figure in diff.figures)
    names = ("phase", "figure") if of_jobs else ("",)
    starred = any(_is_starred(figure) for figure in diff.figures)
    is_probes = all(KPIS[figure.kpi].of_probes is not None for figure in diff.figures)
    clock = "lab" if is_probes else "modelled"
    return Table(
        f"Medians, {clock} (minimum to maximum, number of repeats)",
        (
            *columns(Unit.TEXT, *names, "new is"),
            *columns(Unit.FIGURE, "difference", "p", "old", "new"),
        ),
        tuple(_figure(figure, of_jobs=of_jobs) for figure in diff.figures),
        names=len(names),
        caption="*: all values of one side are above all of the other's" if starred else "",
    )


def _is_starred(figure: FigureDiff) -> bool:
    return figure.apart and figure.finding not in _TONES


def _figure(figure: FigureDiff, *, of_jobs: bool) -> Row:
    job = "" if figure.job is None else f", job {figure.job}"
    finding = f"{figure.finding}{'*' * _is_starred(figure)}"
    sides = (
        (figure.old, figure.old_values, figure.old_resolution_ns),
        (figure.new, figure.new_values, figure.new_resolution_ns),
    )
    return (
        *((f"{figure.phase}{job}",) if of_jobs else ()),
        KPIS[figure.kpi].title,
        Toned(finding, _TONES.get(figure.finding, Tone.PLAIN)),
        _difference(figure),
        "" if figure.p_value is None else f"{figure.p_value:.3f}",
        *(spread_text(figure.kpi, *side) for side in sides),
    )


def spread_text(
    kpi: str, of_side: Spread | None, values: Sequence[float], resolution_ns: float
) -> str:
    """One side of a figure: its median and range, or in how many repeats it is true."""
    if of_side is None:
        return "not measured"
    if KPIS[kpi].quantity is Quantity.TRUTH:
        return f"yes in {sum(values):.0f} of {of_side.n}"
    median, low, high = (
        format_kpi(kpi, value, resolution_ns)
        for value in (of_side.median, of_side.minimum, of_side.maximum)
    )
    extremes = "" if low == high else f"{low} to {high}, "
    return f"{median} ({extremes}n {of_side.n})"


def _difference(figure: FigureDiff) -> str:
    """The new median less the old; of times that differ by less than the resolution, that."""
    if figure.old is None or figure.new is None or figure.difference is None:
        return ""
    if KPIS[figure.kpi].quantity is Quantity.TRUTH:
        return ""
    if not figure.difference:
        return format_kpi(figure.kpi, 0)
    least_ns = max(figure.old_resolution_ns, figure.new_resolution_ns)
    text = format_kpi(figure.kpi, abs(figure.difference), least_ns)
    if text.startswith("<"):
        return text
    text = f"{'-' if figure.difference < 0 else '+'}{text}"
    old = figure.old.median
    return f"{text} ({change(figure.difference / old)})" if old else text


def _verdicts(diff: DrillDiff) -> Table:
    of_jobs = any(verdict.phase is not None for verdict in diff.verdicts)
    names = ("phase", "figure") if of_jobs else ("",)
    return Table(
        "Expectations whose outcome or text changed",
        columns(Unit.TEXT, *names, "old", "new"),
        tuple(
            (
                *((verdict.phase or "",) if of_jobs else ()),
                KPIS[verdict.kpi].title,
                _verdict(verdict.old, verdict.old_resolution_ns),
                _verdict(verdict.new, verdict.new_resolution_ns),
            )
            for verdict in diff.verdicts
            if verdict.changed
        ),
        names=len(names),
    )


def _verdict(verdict: Verdict | None, resolution_ns: float) -> Cell:
    if verdict is None:
        return "not expected"
    tone, said = (Tone.GOOD, "met") if verdict.passed else (Tone.BAD, "not met")
    return Toned(f"{verdict.expectation}: {said}, {verdict.shown(resolution_ns)}", tone)


def _changes(title: str, rows: Iterable[tuple[str, ValueChange]]) -> Table:
    return Table(
        title,
        columns(Unit.TEXT, "", "old", "new"),
        tuple((name, _value(item.old), _value(item.new)) for name, item in rows),
    )


def _value(value: object) -> str | None:
    return None if value is None or value == [] else str(value)


def _about_the_test(diff: DrillDiff) -> str:
    counts = diff.old.valid_repeats, diff.new.valid_repeats
    text = (
        "p: two-sided rank-sum test (Mann-Whitney), exact; a difference is significant below "
        f"{diff.alpha:g}. It treats repeats as independent and does not show the cause. Each "
        "figure is tested separately: of twenty that do not differ, about one appears to."
    )
    if min(counts) and least_rank_sum_p(*counts) >= diff.alpha:
        text += (
            f" {counts[0]} and {counts[1]} repeats are too few to distinguish a difference from "
            "chance: run with --repeat 4 or more."
        )
    return text
