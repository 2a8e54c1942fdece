"""A row of the validation: a published figure, rocelab's figure, and their comparison.

Published figures are in published.yaml, rocelab's are cells of the document. The word of the
comparison depends only on the numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from fnmatch import filter as matching
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.validation.document import Validation

TABLES = Path(__file__).with_name("published.yaml")
WITHIN = 0.1
"""The part of a single published figure by which another may differ either way and agree."""


class Source(StrEnum):
    """The source of a figure, and whether it was read directly."""

    META = "Meta, SIGCOMM'24; second-hand"
    HPN = "HPN, SIGCOMM'24; first-hand"
    LLAMA = "Llama 3; first-hand"
    PACKETS = "packet-level simulators; second-hand"
    BRIDGE = "Megatron Bridge, performance summary; first-hand"
    MEGASCALE = "MegaScale, NSDI'24; second-hand"
    DEEPSEEK = "DeepSeek-V3, report and ISCA'25; second-hand"
    SERVING = "DeepSeek-V3/R1 inference overview; second-hand"
    RTP = "RTP-LLM on H800; second-hand"
    LMSYS = "SGLang team, large-scale EP on 96 H100 (May 2025); first-hand"
    CACHES = "the models' config.json"
    NONE = "not published"


def size(value: float) -> str:
    """Bytes in the decimal units of the papers."""
    unit, name = (1e9, "GB") if value >= 1e9 else (1e6, "MB")
    return f"{value / unit:.3g} {name}"


FORMS: Mapping[str, Callable[[float], str]] = {
    "percent": "{:.0%}".format,
    "signed": "{:+.0%}".format,
    "ratio": "{:.2f}".format,
    "loss": "-{:.1%}".format,
    "size": size,
    "over": lambda value: f"{value - 1:+.0%}",
    "billions": lambda value: f"{value / 1e9:.1f} billion",
    "tflops": "{:,.0f} TFLOP/s".format,
    "seconds": "{:.2f} s".format,
    "days": "{:.2f} days".format,
    "tokens": "{:,.0f} tokens/s".format,
    "bytes": "{:,.0f} B".format,
    "yes-no": lambda value: "yes" if value else "no",
}
"""How a figure is written; `over` is completion over roofline as the slowdown."""

BY_CONSTRUCTION = (
    "mmr/",
    "te/churn/1:2/0/cspf 1",
    "te/scatter/1:1/0/lp 1",
    "util/80%/te/middle",
    "ports/",
    "single-tor/",
    "volume/",
    "model/cache/",
    "model/parameters/",
)
"""Prefixes of cells that need no simulation: statistics of dice, theorems of Clos and Koenig, a
configured rate, arithmetic of timeouts, formulas."""

FITTED = ("model/fit/",)
"""Prefixes of cells that a constant was fitted on."""


class Kind(StrEnum):
    """What agreement of a row is worth: a constant was fitted on it; it follows from the input and
    tests only the arithmetic; the setting is one of several that the publication leaves open, and
    they do not all compare alike; or it could have failed."""

    FITTED = "what a constant was fitted on"
    BY_CONSTRUCTION = "by construction"
    ONE_OF_SEVERAL = "one of several choices"
    PREDICTED = "predicted"


@dataclass(frozen=True)
class Row:
    """published: as text; low, high: the same as numbers, for the comparison. cell: the key of
    rocelab's figure. setting: its conditions. choices: the cells, as a shell's glob, of the same
    figure in all measured settings that the publication leaves open; without, the row's alone."""

    what: str
    cell: str
    form: str
    setting: str
    published: str = "-"
    source: Source = Source.NONE
    low: float | None = None
    high: float | None = None
    choices: str = ""

    @classmethod
    def of(cls, keys: dict[str, Any]) -> Row:
        """A row of published.yaml."""
        low, high = keys.pop("range", (None, None))
        around, within = keys.pop("around", None), keys.pop("within", WITHIN)
        if around is not None:
            low, high = around * (1 - within), around * (1 + within)
        source = Source[keys.pop("by", "none").upper()]
        return cls(**keys, source=source, low=low, high=high)

    def kind(self, validation: Validation) -> Kind:
        if self.cell.startswith(FITTED):
            return Kind.FITTED
        if self.cell.startswith(BY_CONSTRUCTION):
            return Kind.BY_CONSTRUCTION
        cells = matching(validation.values, self.choices)
        words = {replace(self, cell=cell).compared(validation) for cell in cells}
        return Kind.ONE_OF_SEVERAL if len(words) > 1 else Kind.PREDICTED

    def qualified(self, validation: Validation) -> str:
        """The comparison, with what it is worth if that is not a prediction's."""
        kind = self.kind(validation)
        word = self.compared(validation)
        return word if kind is Kind.PREDICTED else f"{word}, {kind}"

    def ours(self, validation: Validation) -> str:
        """Median, extremes and number of repeats."""
        one, form = validation.spread(self.cell), FORMS[self.form]
        if one.n == 1:
            return form(one.median)
        return f"{form(one.median)} ({form(one.minimum)} to {form(one.maximum)}, n={one.n})"

    def ratio(self, validation: Validation) -> float:
        """The median over the middle of the published range, which is above 0."""
        assert self.low is not None and self.high is not None
        return validation.median(self.cell) / ((self.low + self.high) / 2)

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


@cache
def tables() -> Mapping[str, tuple[Row, ...]]:
    """All rows, by table."""
    parsed = yaml.safe_load(TABLES.read_text(encoding="utf-8"))
    return {name: tuple(map(Row.of, rows)) for name, rows in parsed.items()}
