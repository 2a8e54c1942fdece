"""The spread of a figure over repeats of the same run.

In: one number per repeat. Out: how many there were, their median, extremes and coefficient of
variation. A headline is never given without it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """`n` repeats of one figure, in the figure's own unit.

    `cov` is the sample standard deviation divided by the mean; None below two repeats and where
    the mean is 0.
    """

    n: int
    median: float
    minimum: float
    maximum: float
    cov: float | None


def spread(values: Sequence[float]) -> Spread:
    """The spread of `values`. Raises ValueError where there are none."""
    if not values:
        raise ValueError("no values: nothing was measured")
    mean = statistics.fmean(values)
    cov = statistics.stdev(values) / abs(mean) if len(values) > 1 and mean != 0 else None
    return Spread(len(values), statistics.median(values), min(values), max(values), cov)
