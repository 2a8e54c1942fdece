"""Prints a `DrillDiff`, two results of a drill side by side, on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rocelab.base.statistics import Spread, least_rank_sum_p
from rocelab.report.console import table
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


def print_difference(found: DrillDiff, console: Console) -> None:
    """Print figures with their spread, the result and limits of the test, and all changes."""
    console.print(Text(found.name, style="bold"))
    for which, side in (("old", found.old), ("new", found.new)):
        console.print(f"{which}  {_side(side)}", markup=False, highlight=False, soft_wrap=True)
    machine = [(ENVIRONMENT.get(change.key, change.key), change) for change in found.environment]
    tables = (
        _figures(found),
        _verdicts(found),
        _changes("The machine and its software, where they differ", machine),
        _changes("The drill, where it differs", [(change.key, change) for change in found.drill]),
        _changes("The lab, where it differs", [(change.key, change) for change in found.lab]),
    )
    for shown in tables:
        if shown.row_count:
            console.print()
            console.print(shown)
    if not found.environment:
        console.print("Machine and software are the same.")
    console.print(_about_the_test(found), highlight=False, soft_wrap=True)
    if found.drill or found.lab:
        console.print(
            "The drill or the lab changed: the two are not the same experiment.",
            style="yellow",
            soft_wrap=True,
        )


def _side(side: Side) -> str:
    counted = f"{side.valid_repeats} valid of {side.repeats}"
    verdict = "passed" if side.passed else "failed" if side.valid_repeats else "not measured"
    return f"{side.path}: {side.started}, repeats: {counted}, {verdict}"


def _figures(found: DrillDiff) -> Table:
    of_jobs = any(figure.phase is not None for figure in found.figures)
    names = ("phase", "figure") if of_jobs else ("",)
    shown = table(
        "Medians (minimum to maximum, number of repeats)",
        (*names, "new is", "difference", "p", "old", "new"),
        left=len(names) + 1,
        names=len(names),
    )
    styles = {Finding.HIGHER: "bold", Finding.LOWER: "bold", Finding.NOT_MEASURED: "yellow"}
    for figure in found.figures:
        job = "" if figure.job is None else f", job {figure.job}"
        finding = (
            f"{figure.finding}*"
            if figure.apart and figure.finding not in styles
            else figure.finding
        )
        style = styles.get(figure.finding, "none")
        shown.add_row(
            *((f"{figure.phase}{job}",) if of_jobs else ()),
            KPIS[figure.kpi].title,
            Text(finding, style),
            _difference(figure),
            "" if figure.p_value is None else f"{figure.p_value:.3f}",
            _spread(figure.kpi, figure.old, figure.old_values),
            _spread(figure.kpi, figure.new, figure.new_values),
        )
    if any(figure.apart and figure.finding not in styles for figure in found.figures):
        shown.caption = "*: all values of one side are above all of the other's"
    return shown


def _spread(kpi: str, of_side: Spread | None, values: Sequence[float]) -> str:
    if of_side is None:
        return "not measured"
    if KPIS[kpi].quantity is Quantity.TRUTH:
        return f"yes in {sum(values):.0f} of {of_side.n}"
    if of_side.minimum == of_side.maximum:
        return f"{format_kpi(kpi, of_side.median)} (n {of_side.n})"
    low, high = (format_kpi(kpi, value) for value in (of_side.minimum, of_side.maximum))
    return f"{format_kpi(kpi, of_side.median)} ({low} to {high}, n {of_side.n})"


def _difference(figure: FigureDiff) -> str:
    if figure.old is None or figure.new is None or figure.difference is None:
        return ""
    if KPIS[figure.kpi].quantity is Quantity.TRUTH:
        return ""
    sign = "-" if figure.difference < 0 else "+" if figure.difference else ""
    text = sign + format_kpi(figure.kpi, abs(figure.difference))
    if figure.old.median and figure.difference:
        text += f" ({figure.difference / figure.old.median:+.1%})"
    return text


def _verdicts(found: DrillDiff) -> Table:
    of_jobs = any(verdict.phase is not None for verdict in found.verdicts)
    names = ("phase", "figure") if of_jobs else ("",)
    shown = table(
        "Expectations whose outcome or text changed",
        (*names, "old", "new"),
        left=len(names) + 2,
        names=len(names),
    )
    for verdict in found.verdicts:
        if verdict.changed:
            shown.add_row(
                *((verdict.phase or "",) if of_jobs else ()),
                KPIS[verdict.kpi].title,
                _verdict(verdict.old),
                _verdict(verdict.new),
            )
    return shown


def _verdict(verdict: Verdict | None) -> Text:
    if verdict is None:
        return Text("not expected")
    observed = verdict.shown()
    style, said = ("green", "met") if verdict.passed else ("bold red", "not met")
    return Text.assemble(f"{verdict.expectation}: ", (said, style), f", {observed}")


def _changes(title: str, rows: Sequence[tuple[str, ValueChange]]) -> Table:
    shown = table(title, ("", "old", "new"), left=3)
    for name, change in rows:
        shown.add_row(Text(name), Text(_value(change.old)), Text(_value(change.new)))
    return shown


def _value(value: object) -> str:
    return "-" if value is None or value == [] else str(value)


def _about_the_test(found: DrillDiff) -> str:
    counts = found.old.valid_repeats, found.new.valid_repeats
    text = (
        f"p: two-sided rank-sum test (Mann-Whitney), exact; a difference is significant below "
        f"{found.alpha:g}. It "
        "treats repeats as independent and does not show the cause. Each figure is tested "
        "separately: of twenty that do not differ, about one appears to."
    )
    if min(counts) and least_rank_sum_p(*counts) >= found.alpha:
        text += (
            f" {counts[0]} and {counts[1]} repeats are too few to distinguish a difference from "
            f"chance: "
            "run with --repeat 4 or more."
        )
    return text
