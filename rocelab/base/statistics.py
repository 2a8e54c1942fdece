"""The spread of a figure over repeats of the same run, and whether two sets of repeats differ.

The spread has the number of repeats, their median, extremes and coefficient of variation; every
headline carries it. For two sets, a p-value says how likely chance alone separates them as far.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class Spread:
    """`n` repeats of one figure, in the figure's own unit.

    `cov` is the sample standard deviation divided by the mean; None for fewer than two repeats and
    if the mean is 0.
    """

    n: int
    median: float
    minimum: float
    maximum: float
    cov: float | None


def spread(values: Sequence[float]) -> Spread:
    """The spread of `values`. Raises ValueError without values."""
    if not values:
        raise ValueError("no values: nothing was measured")
    mean = statistics.fmean(values)
    cov = statistics.stdev(values) / abs(mean) if len(values) > 1 and mean != 0 else None
    return Spread(len(values), statistics.median(values), min(values), max(values), cov)


def rank_sum_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The two-sided p-value of the rank-sum test (Wilcoxon 1945, Mann and Whitney 1947): of all
    ways to divide these values into sets of these sizes, the share in which the rank sum is at
    least as far from its mean. Exact, also with ties, which share their mean rank.

    It assumes independent repeats, and tests whether the values of one set tend to be above the
    other's. Raises ValueError if a set is empty.
    """
    if not one or not other:
        raise ValueError("no values: nothing was measured")
    import numpy as np

    # Twice the ranks, so that shared ranks are whole numbers too; once if none is shared.
    values = np.asarray([*one, *other])
    below = (values[:, None] > values[None, :]).sum(axis=1)
    equal = (values[:, None] == values[None, :]).sum(axis=1)
    doubled = 2 * below + equal + 1
    ranks = (doubled // np.gcd.reduce(doubled)).tolist()
    total = sum(ranks)
    # ways[k, s]: in how many ways k of the values have s as the sum of their ranks.
    ways = np.zeros((len(one) + 1, total + 1))
    ways[0, 0] = 1
    for rank, reached in zip(ranks, accumulate(ranks), strict=True):
        ways[1:, rank : reached + 1] += ways[:-1, : reached + 1 - rank]
    counts = ways[len(one)]
    # Times the number of values, the mean sum is a whole number.
    off = np.abs(np.arange(total + 1) * len(ranks) - total * len(one))
    seen = abs(sum(ranks[: len(one)]) * len(ranks) - total * len(one))
    return float(counts[off >= seen].sum() / counts.sum())


def least_rank_sum_p(one: int, other: int) -> float:
    """The smallest p-value that the rank-sum test gives for sets of these sizes without equal
    values: each value of one set is above each of the other."""
    return min(1.0, 2 / math.comb(one + other, one))


def student_t(confidence: float, degrees: int) -> float:
    """The t that the absolute value of Student's t, with so many degrees of freedom, exceeds with a
    probability of 1 - `confidence`.

    The probability is the finite sum of Abramowitz and Stegun, 26.7.3 and 26.7.4, in the angle
    arctan(t / sqrt(degrees)), which is found by bisection.
    """
    low, high = 0.0, math.pi / 2
    while low < (middle := (low + high) / 2) < high:
        if _within(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _within(angle: float, degrees: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for number in range(2 + odd, degrees + 1, 2):
        total += term
        term *= cosine * cosine * (number - 1) / number
    return (angle + sine * total) * 2 / math.pi if odd else sine * total
