"""A row of the validation: a published figure, rocelab's figure, and their comparison.

It makes a line of a table from a cell of the document and the published figure. The word of the
comparison depends only on the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import filter as matching

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


class Kind(StrEnum):
    """What agreement of a row is worth: it follows from the input and tests only the arithmetic;
    the setting is one of several that the publication leaves open, and they do not all compare
    alike; or it could have failed."""

    BY_CONSTRUCTION = "by construction"
    ONE_OF_SEVERAL = "one of several choices"
    PREDICTED = "predicted"


def size(value: float) -> str:
    """Bytes in the decimal units of the papers."""
    unit, name = (1e9, "GB") if value >= 1e9 else (1e6, "MB")
    return f"{value / unit:.3g} {name}"


@dataclass(frozen=True)
class Row:
    """published: as text; low, high: the same as numbers, for the comparison. cell: the key of
    rocelab's figure. setting: its conditions. choices: the cells, as a shell's glob, of the same
    figure in all measured settings that the publication leaves open; without, the row's alone."""

    what: str
    published: str
    source: Source
    low: float | None
    high: float | None
    cell: str
    shown: Shown
    setting: str
    choices: str = ""

    def kind(self, validation: Validation) -> Kind:
        if self.cell.startswith(BY_CONSTRUCTION):
            return Kind.BY_CONSTRUCTION
        cells = matching(validation.values, self.choices)
        words = {replace(self, cell=cell).compared(validation) for cell in cells}
        return Kind.ONE_OF_SEVERAL if len(words) > 1 else Kind.PREDICTED

    def ours(self, validation: Validation) -> str:
        """Median, extremes and number of repeats."""
        one = validation.spread(self.cell)
        if one.n == 1:
            return self.shown(one.median)
        return (
            f"{self.shown(one.median)} ({self.shown(one.minimum)} to {self.shown(one.maximum)}, "
            f"n={one.n})"
        )

    def compared(self, validation: Validation) -> str:
        """The position of the median relative to the published figure."""
        if self.low is None or self.high is None:
            return "-"
        one = validation.spread(self.cell)
        if self.low <= one.median <= self.high:
            return "agrees"
        if one.minimum <= self.high and one.maximum >= self.low:
            return "within our spread"
        if one.median > self.high:
            return "ours is higher"
        return "ours is lower"


def table(rows: Sequence[Row], validation: Validation) -> list[str]:
    """Rows as Markdown."""
    lines = [
        "| what | published | by | ours: median (min to max, n) | setting of ours | compared |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.what} | {row.published} | {row.source} | {row.ours(validation)} | {row.setting} "
        f"| {row.compared(validation)}{_qualified(row.kind(validation))} |"
        for row in rows
    ]
    return [*lines, ""]


def _qualified(kind: Kind) -> str:
    return "" if kind is Kind.PREDICTED else f", {kind}"


def around(value: float, by: float = 0.1) -> tuple[float, float]:
    """The range that counts as agreement with one number: a tenth of it either way."""
    return value * (1 - by), value * (1 + by)


AT_LEAST = math.inf
