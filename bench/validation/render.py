"""What the pages of the validation print: rocelab's figures next to published ones, case by case.

Every number of rocelab comes from the document; the pages are templates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain
from typing import Any

from bench.campaign.pages import filled
from bench.validation import engineering, fluid, hashing, history, hpn, scaling
from bench.validation.document import Validation
from bench.validation.rows import Kind, size, tables

DATA = "validation.json"
PAGE, HOSTS_PAGE = "validation.md", "validation-hosts.md"
MODELS_PAGE = "validation-models.md"


def pages(validation: Validation) -> dict[str, str]:
    """The pages by file name: that of AI zones, which has what holds for all comparisons too, and
    that of what lies beyond."""
    figures = {
        "validation": validation,
        "median": validation.median,
        "tables": tables(),
        "size": size,
        **{case.__name__.rpartition(".")[2]: case for case in CASES},
    }
    return {
        PAGE: filled("validation", figures | _zones(validation)),
        HOSTS_PAGE: filled("validation-hosts", figures),
        MODELS_PAGE: filled("validation-models", figures),
    }


CASES = (hashing, scaling, engineering, history, hpn, fluid)
"""Cases whose settings a page names."""


def _zones(validation: Validation) -> dict[str, Any]:
    even = validation["util/100%/te/low"]
    return {
        "tallies": list(_tallies(validation)),
        "missed": sum(value < 0.99 for value in even),
        "even": len(even),
        "hurt": {name: _hurt(validation, name) for name in ("churn", "scatter")},
        "tenths": _tenths,
    }


def _tallies(validation: Validation) -> Iterator[tuple[Kind, int, str]]:
    """How many comparisons of each kind there are, and the words that they give."""
    rows = [row for row in chain.from_iterable(tables().values()) if row.low is not None]
    for kind in reversed(Kind):
        words = Counter(row.compared(validation) for row in rows if row.kind(validation) is kind)
        yield (
            kind,
            words.total(),
            ", ".join(f"{word} {count}" for word, count in words.most_common()),
        )


def _tenths(values: tuple[float, ...]) -> tuple[float, float]:
    """The 10th and the 90th percentile."""
    ordered, tenth = sorted(values), len(values) // 10
    return ordered[tenth], ordered[-1 - tenth]


def _hurt(validation: Validation, placement: str) -> float:
    """The share of jobs that two failed uplinks keep below their roofline."""
    reached = validation[f"phase/{placement}/4f"]
    return sum(value < 0.99 for value in reached) / len(reached)
