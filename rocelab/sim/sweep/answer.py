"""Which key of a sweep moves its main figure most."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base.quantities import formatted
from rocelab.base.wording import counted
from rocelab.report.answers.clauses import sentence, times_of
from rocelab.report.document import MOST_FIGURES, Answer, Card, Figure
from rocelab.sim.sweep.store import Row, as_words
from rocelab.sim.sweep.sweep_spec import Axis, Sweep
from rocelab.sim.sweep.titles import title_of, unit_of

MAIN = ("iteration_time", "busbw", "jct_ratio", "slowdown_p99")
"""The main figure is the first of these that cells have, else the first that they have."""


@dataclass(frozen=True, slots=True)
class KeyEffect:
    """How far a key moves a figure: its settings with the lowest and the highest median."""

    label: str
    lowest: tuple[str, float]
    highest: tuple[str, float]

    @property
    def factor(self) -> float:
        """The higher median over the lower; infinite if that is 0."""
        least = self.lowest[1]
        return self.highest[1] / least if least else float("inf")


def main_figure(names: Sequence[str]) -> str | None:
    """The figure that the answer is about; None without any."""
    return next((name for name in MAIN if name in names), next(iter(names), None))


def effects(sweep: Sweep, rows: Sequence[Row], name: str) -> list[KeyEffect]:
    """The effect of each key of several settings, of seeds too, the greatest first."""
    effects = [_effect(axis, rows, name) for axis in sweep.axes if not axis.repeats]
    return sorted(
        (effect for effect in effects if effect is not None), key=lambda effect: -effect.factor
    )


def _effect(axis: Axis, rows: Sequence[Row], name: str) -> KeyEffect | None:
    medians = []
    for setting in axis.settings:
        words = [as_words(value) or "-" for value in setting]
        values = [
            float(value)
            for row in rows
            if [as_words(row[key]) or "-" for key in axis.keys] == words
            and isinstance(value := row.get(name), int | float)
        ]
        if values:
            medians.append((", ".join(words), statistics.median(values)))
    if len(medians) < 2:
        return None
    by_value = sorted(medians, key=lambda pair: pair[1])
    return KeyEffect(axis.label, by_value[0], by_value[-1])


def sweep_answer(
    sweep: Sweep, rows: Sequence[Row], names: Sequence[str], plot: Figure | None
) -> Answer:
    """The answer of the rows without errors; `names` are their figures."""
    good = [row for row in rows if row["error"] is None]
    failed = len(rows) - len(good)
    failures = f"{failed} of {counted(len(rows), 'cell')} failed" if failed else ""
    name = main_figure(names)
    if name is None:
        return Answer(sentence(failures))
    by_key = effects(sweep, good, name)
    text = sentence(_most(by_key, name), *_others(by_key), failures)
    return Answer(text, tuple(_cards(good, by_key, name)), plot)


def _most(by_key: Sequence[KeyEffect], name: str) -> str:
    if not by_key:
        return ""
    most = by_key[0]
    if most.factor == 1:
        return f"no key moves {title_of(name)}"
    (low, least), (high, greatest) = most.lowest, most.highest
    unit = unit_of(name)
    by = f"{times_of(greatest, least)}, " if least else ""
    return (
        f"of the keys, {most.label} moves {title_of(name)} most: {by}from "
        f"{formatted(least, unit)} ({low}) to {formatted(greatest, unit)} ({high}), medians over "
        "the other keys"
    )


def _others(by_key: Sequence[KeyEffect]) -> list[str]:
    return [
        f"{effect.label} {times_of(effect.highest[1], effect.lowest[1])}"
        for effect in by_key[1:3]
        if effect.lowest[1]
    ]


def _cards(rows: Sequence[Row], by_key: Sequence[KeyEffect], name: str) -> list[Card]:
    values = [float(value) for row in rows if isinstance(value := row.get(name), int | float)]
    title, unit = title_of(name), unit_of(name)
    title = f"{title[:1].upper()}{title[1:]}"
    cards = [
        Card(f"{title}, least", formatted(min(values), unit)),
        Card(f"{title}, greatest", formatted(max(values), unit)),
    ]
    cards += [
        Card(f"By {effect.label}", times_of(effect.highest[1], effect.lowest[1]))
        for effect in by_key
        if effect.lowest[1]
    ]
    return cards[:MOST_FIGURES]
