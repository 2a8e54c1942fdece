"""A row of the validation: a published figure, ours beside it, and how the two compare.

In: a cell of the document and what was published. Out: a line of a table. The word that compares
them follows from the numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from bench.validation.document import Validation

Shown = Callable[[float], str]


class Source(StrEnum):
    """Who says so, and whether we have read it ourselves."""

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
"""Beginnings of cells that no simulation had to find: a die's statistics, theorems of Clos and
Koenig, a rate that was set, arithmetic of timeouts, formulas."""


def size(value: float) -> str:
    """Bytes in the decimal units of the papers."""
    unit, name = (1e9, "GB") if value >= 1e9 else (1e6, "MB")
    return f"{value / unit:.3g} {name}"


@dataclass(frozen=True)
class Row:
    """published: in words; low, high: the same as numbers, for comparing. cell: ours. setting: what
    ours is of."""

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
        """Whether it follows from what was put in, so that agreeing tests our arithmetic alone."""
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
        """Where the median is, seen from the published figure."""
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
    """What counts as agreeing with one number: a tenth of it either way."""
    return value * (1 - by), value * (1 + by)


AT_LEAST = math.inf
