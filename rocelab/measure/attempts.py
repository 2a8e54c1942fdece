"""How often a drill measures: as often as asked, and again where the machine did not carry a run.

In: how many valid runs are wanted, and how one is made. Out: every run in order, the invalid ones
too: they stay in the result with their reasons, and enter no figure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

RETRIES = 2
"""Runs beyond those asked for, in place of invalid ones, where nothing else is said. What comes
late three times in a row is not bad luck but a machine too small or too busy."""

_Run = TypeVar("_Run")


def measure_valid(
    wanted: int,
    retries: int,
    measure: Callable[[str], _Run],
    is_valid: Callable[[_Run], bool],
) -> list[_Run]:
    """Measure until `wanted` runs are valid, `retries` times more than that at most.

    `measure` is given what tells this run from the others, to show: empty where there is one only.
    """
    runs: list[_Run] = []
    while sum(map(is_valid, runs)) < wanted and len(runs) < wanted + retries:
        runs.append(measure(_which(len(runs) + 1, wanted)))
    return runs


def _which(number: int, wanted: int) -> str:
    if number > wanted:
        return f" (repeat {number}, in place of an invalid one)"
    return f" (repeat {number} of {wanted})" if wanted > 1 else ""
