"""The results of `bench.simgrid`: times, memory and differences of both engines, side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from bench.simgrid_cases import Case

MIB = 2**20
TARGET = 1e-6
"""The largest relative difference of rates and ends that counts as agreement."""


class Side(StrEnum):
    SIMGRID = "SimGrid"
    OURS = "this engine"


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one process; None: not reached within the limit, or not requested. Seconds are CPU
    time, to which the machine's other work adds little; both sides compute on one CPU.

    before_bytes, peak_bytes: the most resident memory before it read the problem, and at all.
    build_s: making hosts, links and routes; start_s: starting all flows; both are SimGrid's only.
    solve_s: all rates once. to_the_end_s: the first solve and all that follow.
    """

    before_bytes: float | None = None
    peak_bytes: float | None = None
    build_s: float | None = None
    start_s: float | None = None
    solve_s: float | None = None
    to_the_end_s: float | None = None


@dataclass(frozen=True, slots=True)
class Compared:
    """distinct_rates: the number of different rates of the first solve. rates_differ, ends_differ:
    the largest relative difference of any flow; None if a side has no answer."""

    case: Case
    subflows: int
    distinct_rates: int
    rates_differ: float | None
    ends_differ: float | None
    times: Mapping[Side, Sequence[Times]]

    def values(self, side: Side, name: str) -> list[float]:
        """The measurements of a side, from the processes that got that far."""
        times = (getattr(one, name) for one in self.times[side])
        return [value for value in times if value is not None]

    def median(self, side: Side, name: str) -> float | None:
        values = self.values(side, name)
        return statistics.median(values) if values else None

    def factor(self, name: str) -> float | None:
        """SimGrid's time as a multiple of rocelab's."""
        theirs, rocelab = self.median(Side.SIMGRID, name), self.median(Side.OURS, name)
        return theirs / rocelab if theirs and rocelab else None


def digits_spread(values: Sequence[float], scale: float = 1) -> str:
    """`median (least to most)` with three significant digits; empty for no values."""
    if not values:
        return ""
    bounds = [three_digits(scale * value) for value in (min(values), max(values))]
    middle = three_digits(scale * statistics.median(values))
    return middle if len(values) == 1 else f"{middle} ({bounds[0]} to {bounds[1]})"


def three_digits(value: float) -> str:
    """0.0123, 1.23, 12.3, 1,234."""
    if value <= 0:
        return "0"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


@dataclass(frozen=True, slots=True)
class Growth:
    """The power of the number of subflows with which the time to the end grows, by side, over the
    two largest sizes that both reached within a family."""

    family: str
    small: int
    large: int
    powers: Mapping[Side, float]


def growths(compared: Sequence[Compared]) -> list[Growth]:
    """The growth of each family of which both reached two sizes."""
    name = "to_the_end_s"
    curves = []
    for family, cases in groupby(compared, key=lambda case: case.case.family):
        both = [case for case in cases if case.factor(name) is not None]
        if len(both) < 2:
            continue
        small, large = both[-2:]
        sizes = math.log(large.subflows / small.subflows)
        powers = {
            side: _log_ratio(large.median(side, name), small.median(side, name)) / sizes
            for side in Side
        }
        curves.append(Growth(family, small.subflows, large.subflows, powers))
    return curves


def _log_ratio(large: float | None, small: float | None) -> float:
    return math.log(large / small) if large and small else math.nan


def worst_difference(compared: Sequence[Compared]) -> float:
    """The largest difference of any rate and any end; NaN without answers of both."""
    pairs = (
        difference for case in compared for difference in (case.rates_differ, case.ends_differ)
    )
    return max((difference for difference in pairs if difference is not None), default=math.nan)
