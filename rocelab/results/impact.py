"""The cost of a failure for the iteration that it hit.

From the begin and end of each iteration and the time of the fault comes an `Impact`, the
link-failure test of the IETF's draft on benchmarks of AI fabrics
(draft-calabria-bmwg-ai-fabric-training-bench): the overhead of the iteration that was hit, and
whether it had an impact.

The draft asks whether the iteration stayed within the 99th percentile of those before. With few
iterations that is the slowest one: with five, one undisturbed iteration in six is slower by chance,
and an impact within their noise counts as none. This module therefore tests equivalence (Schuirmann
1987): there is no impact if even the upper confidence bound of the overhead is small enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocelab.base.statistics import student_t

FEWEST = 5
"""The fewest undisturbed iterations that make a steady state to compare with."""

CONFIDENCE = 0.95
ZERO_IMPACT = 0.05
"""The overhead up to which a failure counts as one without impact. Five iterations with a standard
deviation of 1 % can tell 5 % from none; with 2 % they cannot: the half width of the interval is 3.0
standard deviations of five, 2.3 of ten and 2.1 of twenty."""


@dataclass(frozen=True, slots=True)
class Impact:
    """The iteration that was under way, or next, when the first fault began; the slowest where the
    uncertainty of the fault's instant (`Event.took_ns`) allows several."""

    iteration: int
    """Its number, 0 the first, warm-up included."""
    failed_ns: int
    """How long it took."""
    steady: int
    steady_ns: float
    """The median and 99th percentile of the `steady` measured iterations before it, all in the
    lab's clock."""
    steady_p99_ns: float
    """The median and 99th percentile of the `steady` measured iterations before it, all in the
    lab's clock."""
    overhead: float
    """Failed over steady, minus 1."""
    zero_impact: bool | None
    """True if the upper bound is at most ZERO_IMPACT, false if the lower one is above it, and None
    if they do not tell."""
    overhead_low: float | None = None
    """Its bounds at CONFIDENCE, from the spread of the steady ones, over all iterations that may
    have been hit."""
    overhead_high: float | None = None
    """Its bounds at CONFIDENCE, from the spread of the steady ones, over all iterations that may
    have been hit."""


def overhead_bounds(failed_ns: int, steady_ns: npt.NDArray[np.int64]) -> tuple[float, float]:
    """The lower and upper bound, at CONFIDENCE, of the overhead of an iteration that took
    `failed_ns`.

    Its undisturbed time is bounded by the prediction interval of one further observation of the
    steady iterations' logarithms, assumed normal (Student's t with n - 1 degrees of freedom).
    Raises ValueError for fewer than two of them.
    """
    if len(steady_ns) < 2:
        raise ValueError("one iteration has no spread")
    logs = np.log(steady_ns.astype(np.float64))
    n = len(logs)
    quantile = student_t(CONFIDENCE, n - 1)
    half = quantile * float(np.std(logs, ddof=1)) * math.sqrt(1 + 1 / n)
    middle = math.log(failed_ns) - float(np.mean(logs))
    return math.exp(middle - half) - 1, math.exp(middle + half) - 1
