"""The document of a diagnosis: the verdict, its evidence, and a map of ranks and steps."""

from __future__ import annotations

import numpy as np

from rocelab.base.quantities import Unit, duration
from rocelab.diagnose.case import Case
from rocelab.diagnose.critical import Floats, lateness
from rocelab.report.document import (
    Block,
    Code,
    Column,
    Document,
    Items,
    Note,
    Section,
    Table,
    Tone,
    columns,
)
from rocelab.results.diagnosis import Cause, CauseVerdict, Diagnosis

SHADES = " ░▒▓█"
MOST_COLUMNS = 64
SHOWN_RANKS = 32
SHOWN_PARTS = 8


def diagnosis_document(diagnosis: Diagnosis, case: Case, width: int) -> Document:
    """Verdict, further findings, notes, the map in lines of `width` characters, and the critical
    path."""
    is_none = diagnosis.verdict.cause is Cause.NONE
    is_invalid = diagnosis.verdict.cause is Cause.INVALID
    problems = () if is_invalid else diagnosis.problems
    return Document(
        "",
        (
            Note(
                _headline(diagnosis.verdict, diagnosis.network),
                Tone.GOOD if is_none else Tone.BAD,
            ),
            *_evidence(diagnosis.verdict),
            *(Note(f"the run: {problem}", Tone.CAUTION) for problem in problems),
            *(
                block
                for verdict in diagnosis.others
                for block in (
                    Note(f"also: {_headline(verdict, diagnosis.network)}"),
                    *_evidence(verdict),
                )
            ),
            *(Note(f"note: {note}") for note in diagnosis.notes),
            Section("", (Code("\n".join(heat_map(diagnosis, case, width))),)),
            path_table(diagnosis),
        ),
    )


def _evidence(verdict: CauseVerdict) -> list[Block]:
    return [Items(verdict.evidence)] if verdict.evidence else []


def _headline(verdict: CauseVerdict, network: str | None) -> str:
    if verdict.cause is Cause.NONE:
        of_network = "" if network is None else f" in network {network}"
        return f"none: the job's plan explains its time{of_network}"
    if verdict.cause is Cause.INVALID:
        return "invalid: the run exceeded its limits, so there is no verdict on the network; run "
        "it again"
    cost = (
        f"{duration(verdict.excess.lab_ns)} of the lab on the critical path "
        f"({duration(verdict.excess.modelled_ns)} modelled)"
    )
    which = "iteration" if len(verdict.iterations) == 1 else "iterations"
    where = f", in {which} {_ranges(verdict.iterations)}" if verdict.iterations else ""
    of_network = "" if network is None else f" of network {network}"
    return f"{verdict.cause}: {verdict.subject}{of_network}; {cost}{where}"


def _ranges(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers)) if len(numbers) <= 8 else f"{numbers[0]} to {numbers[-1]}"


def heat_map(diagnosis: Diagnosis, case: Case, width: int) -> list[str]:
    """The lateness of arrivals at each rank in each step of the shown iteration, as blocks in lines
    of at most `width` characters, except for the first, which explains them.

    A slow rank or link shows as a line; a step in which all were late as a column. The scale ends
    at the worst of all iterations or, if nothing was late, at a whole step's time.
    """
    late = lateness(case.timing, case.job.ranks, diagnosis.shown - case.timing.first)
    names = max(map(len, case.server_of))
    columns, steps = _columns(late, max(1, min(MOST_COLUMNS, width - names - len("     ") - 4)))
    top = top_ns(case)
    lines = [
        f"How late data reached each rank, iteration {diagnosis.shown}, "
        f"{'a step' if steps == 1 else f'{steps} steps'} per block; full: "
        f"{duration(top)} of the lab"
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


def path_table(diagnosis: Diagnosis) -> Table:
    """The sends of the critical path with the greatest excess."""
    late = sorted(diagnosis.path, key=lambda part: part.excess.lab_ns, reverse=True)[:SHOWN_PARTS]
    return Table(
        f"Critical path of iteration {diagnosis.shown} ({duration(diagnosis.took.lab_ns)} of the "
        f"lab; typical {duration(diagnosis.typical.lab_ns)}): the sends with the greatest excess",
        (
            Column("send"),
            *columns(Unit.NUMBER, "from", "to"),
            *columns(Unit.NS, "took, lab", "excess, lab", "host stalled, lab"),
        ),
        tuple(
            (
                part.send,
                part.source,
                part.destination,
                *(time.lab_ns for time in (part.took, part.excess, part.hosts)),
            )
            for part in sorted(late, key=lambda part: part.posted.lab_ns)
        ),
    )
