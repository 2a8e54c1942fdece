"""A row of the validation: a published figure, rocelab's figure, and their comparison.

It makes a line of a table from a cell of the document and the published figure. The word of the
comparison depends only on the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.validation.document import Validation

Shown = Callable[[float], str]


class Source(StrEnum):
    """The source of a figure, and whether it was read directly."""

    META = "Meta, SIGCOMM'24; second-hand"
    HPN = "HPN, SIGCOMM'24; first-hand"
    LLAMA = "Llama 3; first-hand"
    PACKETS = "packet-level simulators; second-hand"
    NONE = "not published"


def percent(value: float) -> str:
    return f"{value:.0%}"


def signed(value: float) -> str:
    return f"{value:+.0%}"


def ratio(value: float) -> str:
    return f"{value:.2f}"


BY_CONSTRUCTION = (
    "mmr/",
    "te/churn/1:2/0/cspf 1",
    "te/scatter/1:1/0/lp 1",
    "util/80%/te/middle",
    "ports/",
    "single-tor/",
    "volume/",
)
"""Prefixes of cells that need no simulation: statistics of dice, theorems of Clos and Koenig, a
configured rate, arithmetic of timeouts, formulas."""


def size(value: float) -> str:
    """Bytes in the decimal units of the papers."""
    unit, name = (1e9, "GB") if value >= 1e9 else (1e6, "MB")
    return f"{value / unit:.3g} {name}"


@dataclass(frozen=True)
class Row:
    """published: as text; low, high: the same as numbers, for the comparison. cell: the key of
    rocelab's figure. setting: its conditions."""

    what: str
    published: str
    source: Source
    low: float | None
    high: float | None
    cell: str
    shown: Shown
    setting: str

    @property
    def by_construction(self) -> bool:
        """Whether the figure follows from the inputs, so that agreement tests only the
        arithmetic."""
        return self.cell.startswith(BY_CONSTRUCTION)

    def ours(self, found: Validation) -> str:
        """Median, extremes and number of repeats."""
        one = found.spread(self.cell)
        if one.n == 1:
            return self.shown(one.median)
        return (
            f"{self.shown(one.median)} ({self.shown(one.minimum)} to {self.shown(one.maximum)}, "
            f"n={one.n})"
        )

    def compared(self, found: Validation) -> str:
        """The position of the median relative to the published figure."""
        if self.low is None or self.high is None:
            return "-"
        one = found.spread(self.cell)
        if self.low <= one.median <= self.high:
            return "agrees"
        if one.minimum <= self.high and one.maximum >= self.low:
            return "within our spread"
        if one.median > self.high:
            return "ours is higher"
        return "ours is lower"


def table(rows: Sequence[Row], found: Validation) -> list[str]:
    """Rows as Markdown."""
    lines = [
        "| what | published | by | ours: median (min to max, n) | setting of ours | compared |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.what} | {row.published} | {row.source} | {row.ours(found)} | {row.setting} "
        f"| {row.compared(found)}{', by construction' * row.by_construction} |"
        for row in rows
    ]
    return [*lines, ""]


def around(value: float, by: float = 0.1) -> tuple[float, float]:
    """The range that counts as agreement with one number: a tenth of it either way."""
    return value * (1 - by), value * (1 + by)


AT_LEAST = math.inf
