"""What a difference between lab and simulator means: verdicts and p-values.

Pure: from the figures of repeated runs, or counts of packets, to probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from scipy.stats import binomtest, cramervonmises_2samp  # type: ignore[import-untyped]

LEVEL = 0.05
"""A p-value below it is a difference."""


class Verdict(StrEnum):
    """What was compared, where there are enough data to decide."""

    AGREES = "agrees"
    DIFFERS = "differs"
    UNDECIDED = "undecided"


def distribution_p(one: Sequence[float], other: Sequence[float]) -> float:
    """The p-value of the two-sample test of Cramer and von Mises (Anderson 1962;
    scipy.stats.cramervonmises_2samp, exact for up to 20 values): how likely two samples of one
    distribution are as far apart, in place or in width. 1 where one has a single value, which
    decides nothing."""
    if min(len(one), len(other)) < 2:
        return 1.0
    return float(cramervonmises_2samp(one, other).pvalue)


def proportion_p(part: int, whole: int, low: float, high: float) -> float:
    """The p-value of the exact two-sided binomial test (Clopper and Pearson 1934;
    scipy.stats.binomtest) of `part` of `whole` against any probability from `low` to `high`: that
    of the nearest end, 1 within."""
    if low * whole <= part <= high * whole:
        return 1.0
    nearest = low if part < low * whole else high
    return float(binomtest(part, whole, nearest).pvalue)


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """P-values of several tests, corrected for their number (Holm 1979, A Simple Sequentially
    Rejective Multiple Test Procedure): one below LEVEL is a difference whichever others there are.
    """
    corrected, least = [1.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, place in enumerate(order):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = least
    return tuple(corrected)
