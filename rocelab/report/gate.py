"""The document of a `Gate`: whether a drill's new result is worse, figure by figure."""

from __future__ import annotations

from collections.abc import Iterator

from rocelab.report.difference import ENVIRONMENT, spread_text
from rocelab.report.document import Cell, Column, Document, Note, Row, Table, Tone, Toned
from rocelab.results.difference import FigureDiff
from rocelab.results.gate import Gate, GateOutcome
from rocelab.results.kpis import KPIS

_TONES = {
    GateOutcome.PASSED: Tone.GOOD,
    GateOutcome.WORSE: Tone.BAD,
    GateOutcome.UNKNOWN: Tone.CAUTION,
}
_COLUMNS = ("figure", "outcome", "p", "worse below", "old", "new")


def gate_document(gate: Gate) -> Document:
    """Each figure with its outcome, expectations that are no longer met, and what differs."""
    return Document(
        gate.name,
        (
            Table(
                "Medians (minimum to maximum, number of repeats)",
                tuple(map(Column, _COLUMNS)),
                tuple(_rows(gate)),
            ),
            *_notes(gate),
        ),
        name=gate.name,
        verdict=Toned(gate.outcome, _TONES[gate.outcome]),
    )


def _rows(gate: Gate) -> Iterator[Row]:
    for gated in gate.figures:
        figure = gated.difference
        said = "not worse" if gated.outcome is GateOutcome.PASSED else gated.outcome
        outcome = Toned(gated.why or said, _TONES[gated.outcome])
        p_values: list[Cell] = [
            "" if value is None else f"{value:.3f}" for value in (figure.p_value, gated.threshold)
        ]
        sides = (
            (figure.old, figure.old_values, figure.old_resolution_ns),
            (figure.new, figure.new_values, figure.new_resolution_ns),
        )
        texts = (spread_text(figure.kpi, *side) for side in sides)
        yield (_name(figure), outcome, *p_values, *texts)


def _notes(gate: Gate) -> Iterator[Note]:
    for verdict in gate.unmet:
        if verdict.new is not None:
            observed = f"{verdict.new.expectation}, observed {verdict.new.shown()}"
            yield Note(f"no longer met: {KPIS[verdict.kpi].title}: {observed}", Tone.BAD)
    for name, side in (("old", gate.old), ("new", gate.new)):
        if side.ended_early is not None:
            tone = Tone.BAD if side.ended_early.failed else Tone.CAUTION
            yield Note(f"the {name} drill ended early: {side.ended_early.why}", tone)
    for change in gate.environment:
        name = ENVIRONMENT.get(change.key, change.key)
        yield Note(f"{name}: {change.old} then, {change.new} now")


def _name(figure: FigureDiff) -> str:
    where = [figure.phase, None if figure.job is None else f"job {figure.job}"]
    return ", ".join(filter(None, (*where, KPIS[figure.kpi].title)))
