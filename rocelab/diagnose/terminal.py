"""A diagnosis on a terminal: the verdict, its evidence, and a map of ranks and steps.

`print_diagnosis` writes a `Diagnosis` and its `Case` to a rich console; the text is complete
without colours.
"""

from __future__ import annotations

import numpy as np
from rich.console import Console
from rich.table import Table

from rocelab.base.units import format_duration
from rocelab.diagnose.case import Case
from rocelab.diagnose.critical import Floats, lateness
from rocelab.report.console import table
from rocelab.results.diagnosis import Cause, CauseVerdict, Diagnosis

SHADES = " ░▒▓█"
MOST_COLUMNS = 64
SHOWN_RANKS = 32
SHOWN_PARTS = 8


def print_diagnosis(found: Diagnosis, case: Case, console: Console) -> None:
    """Print verdict, further findings, notes, the map and the critical path."""
    style = "bold green" if found.verdict.cause is Cause.NONE else "bold red"
    console.print(_headline(found.verdict), style=style, highlight=False, soft_wrap=True)
    _print_evidence(found.verdict, console)
    if found.verdict.cause is not Cause.INVALID:
        for problem in found.problems:
            console.print(f"the run: {problem}", style="yellow", markup=False, soft_wrap=True)
    for verdict in found.others:
        console.print(f"also: {_headline(verdict)}", highlight=False, soft_wrap=True)
        _print_evidence(verdict, console)
    for note in found.notes:
        console.print(f"note: {note}", markup=False, highlight=False, soft_wrap=True)
    console.print()
    for line in heat_map(found, case, console.width):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print()
    console.print(path_table(found))


def _headline(verdict: CauseVerdict) -> str:
    if verdict.cause is Cause.NONE:
        return "none: the job's plan explains its time"
    if verdict.cause is Cause.INVALID:
        return "invalid: the run exceeded its limits, so there is no verdict on the network; run "
        "it again"
    cost = (
        f"{format_duration(verdict.excess.lab_ns)} of the lab on the critical path "
        f"({format_duration(verdict.excess.modelled_ns)} modelled)"
    )
    which = "iteration" if len(verdict.iterations) == 1 else "iterations"
    where = f", in {which} {_ranges(verdict.iterations)}" if verdict.iterations else ""
    return f"{verdict.cause}: {verdict.subject}; {cost}{where}"


def _ranges(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) <= 8 else f"{numbers[0]} to {numbers[-1]}"


def _print_evidence(verdict: CauseVerdict, console: Console) -> None:
    for line in verdict.evidence:
        console.print(f"  - {line}", markup=False, highlight=False, soft_wrap=True)


def heat_map(found: Diagnosis, case: Case, width: int) -> list[str]:
    """The lateness of arrivals at each rank in each step of the shown iteration, as blocks in lines
    of at most `width` characters, except for the first, which explains them.

    A slow rank or link shows as a line; a step in which all were late as a column. The scale ends
    at the worst of all iterations or, if nothing was late, at a whole step's time.
    """
    late = lateness(case.timing, case.job.ranks, found.shown - case.timing.first)
    names = max(map(len, case.server_of))
    columns, steps = _columns(late, max(1, min(MOST_COLUMNS, width - names - len("     ") - 4)))
    top = top_ns(case)
    lines = [
        f"How late data reached each rank, iteration {found.shown}, "
        f"{'a step' if steps == 1 else f'{steps} steps'} per block; full: "
        f"{format_duration(top)} of the lab"
    ]
    for rank in _shown(columns):
        cells = "".join(_shade(value, top) for value in columns[rank])
        lines.append(f"{rank:>5} {case.server_of[rank]:<{names}} |{cells}|")
    if len(columns) > SHOWN_RANKS:
        lines.append(f"the {SHOWN_RANKS} of {len(columns)} ranks that were latest")
    return lines


def top_ns(case: Case) -> float:
    """The end of the scale of lateness."""
    spent = case.timing.arrived - case.timing.posted - case.timing.excess
    return max(float(case.timing.excess.max()), float(spent.max()))


def _shown(columns: Floats) -> list[int]:
    ranks = list(range(len(columns)))
    if len(ranks) <= SHOWN_RANKS:
        return ranks
    worst = np.nan_to_num(columns).max(axis=1)
    return sorted(sorted(ranks, key=lambda rank: -worst[rank])[:SHOWN_RANKS])


def _columns(late: Floats, most: int) -> tuple[Floats, int]:
    """Merge neighbouring steps, by their worst, until there are at most `most`."""
    steps = -(-late.shape[1] // most)
    starts = range(0, late.shape[1], steps)
    parts = [np.fmax.reduce(late[:, start : start + steps], axis=1) for start in starts]
    return np.stack(parts, axis=1), steps


def _shade(value: float, top: float) -> str:
    if np.isnan(value):
        return "·"
    return SHADES[min(len(SHADES) - 1, round(value / top * (len(SHADES) - 1)))]


def path_table(found: Diagnosis) -> Table:
    """The sends of the critical path with the greatest excess."""
    shown = table(
        f"Critical path of iteration {found.shown} ({format_duration(found.took.lab_ns)} of the "
        f"lab; typical {format_duration(found.typical.lab_ns)}): the sends with the greatest "
        f"excess",
        ("send", "from", "to", "took", "excess", "host stalled"),
    )
    late = sorted(found.path, key=lambda part: part.excess.lab_ns, reverse=True)[:SHOWN_PARTS]
    for part in sorted(late, key=lambda part: part.posted.lab_ns):
        shown.add_row(
            str(part.send),
            str(part.source),
            str(part.destination),
            *(format_duration(time.lab_ns) for time in (part.took, part.excess, part.hosts)),
        )
    return shown
