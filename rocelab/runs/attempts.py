"""Repeats a drill's runs until enough are valid.

Returns every run in order. Invalid runs, which the machine did not carry, stay in the result with
their reasons and enter no figure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

RETRIES = 2
"""The default number of runs that may replace invalid ones. Three late runs in a row are not bad
luck: the machine is too small or too busy."""

_Run = TypeVar("_Run")


def measure_valid(
    wanted: int,
    retries: int,
    measure: Callable[[str], _Run],
    is_valid: Callable[[_Run], bool],
    runs: list[_Run] | None = None,
    on_run: Callable[[], object] = lambda: None,
) -> list[_Run]:
    """Measure until `wanted` runs are valid, at most `wanted` + `retries` times.

    `measure` gets a label that tells this run from the others, empty for a single run. `runs` has
    those that were measured earlier, which count; each new one is appended to it, then `on_run` is
    called.
    """
    runs = [] if runs is None else runs
    while not are_enough(runs, wanted, retries, is_valid):
        runs.append(measure(_which(len(runs) + 1, wanted)))
        on_run()
    return runs


def are_enough(
    runs: Sequence[_Run], wanted: int, retries: int, is_valid: Callable[[_Run], bool]
) -> bool:
    """Whether `measure_valid` would measure no more after these."""
    return sum(map(is_valid, runs)) >= wanted or len(runs) >= wanted + retries


def _which(number: int, wanted: int) -> str:
    if number > wanted:
        return f" (repeat {number}, in place of an invalid one)"
    return f" (repeat {number} of {wanted})" if wanted > 1 else ""
