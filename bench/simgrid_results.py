"""The results of `bench.simgrid` as tables: times, memory and differences, side by side.

Makes the text of bench/simgrid.md from the measurements of all cases.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
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


def markdown(compared: Sequence[Compared], machine: Mapping[str, object], limit_s: float) -> str:
    """The page."""
    lines = ["# SimGrid beside this engine, measured by `python -m bench.simgrid`", ""]
    lines += [f"- {key.replace('_', ' ')}: {value}" for key, value in machine.items()]
    lines += ["", "## Time", "", *_table(TIME_HEAD, (_times(case, limit_s) for case in compared))]
    lines += [
        "",
        "Median (least to most) of the runs; a single value is of a single run. What is timed",
    ]
    lines += ["and what is not, and SimGrid's settings, are in [README.md](README.md#simgrid)."]
    lines += ["", *growth_lines(compared)]
    lines += ["", "## Agreement, memory and preparation", ""]
    lines += _table(REST_HEAD, (_rest(case) for case in compared))
    lines += ["", *verdict(compared)]
    return "\n".join(lines) + "\n"


TIME_HEAD = (
    "traffic and fabric",
    "ranks x QPs",
    "subflows",
    "distinct rates",
    *(f"one solve, CPU ms: {side}" for side in Side),
    "factor",
    *(f"to the end, CPU s: {side}" for side in Side),
    "factor",
)
REST_HEAD = (
    "traffic and fabric",
    "subflows",
    "rates differ",
    "ends differ",
    *(f"peak memory (before), MiB: {side}" for side in Side),
    "SimGrid: platform, CPU s",
    "SimGrid: start flows, CPU s",
)


def _times(compared: Compared, limit_s: float) -> list[str]:
    case = compared.case
    over = f"over {limit_s:.0f} s"
    cells = [case.family, f"{case.ranks} x {case.qps}", f"{compared.subflows:,}"]
    cells.append(f"{compared.distinct_rates:,}")
    cells += [spread(compared.values(side, "solve_s"), 1e3) or over for side in Side]
    cells.append(_factor(compared.factor("solve_s")))
    if not case.to_the_end:
        return [*cells, "", "", ""]
    cells += [spread(compared.values(side, "to_the_end_s"), 1) or over for side in Side]
    return [*cells, _factor(compared.factor("to_the_end_s"))]


def _rest(compared: Compared) -> list[str]:
    cells = [compared.case.family, f"{compared.subflows:,}"]
    cells += [
        "" if d is None else f"{d:.1e}" for d in (compared.rates_differ, compared.ends_differ)
    ]
    for side in Side:
        peak, before = compared.median(side, "peak_bytes"), compared.median(side, "before_bytes")
        cells.append(f"{peak / MIB:.0f} ({before / MIB:.0f})" if peak and before else "")
    return cells + [
        spread(compared.values(Side.SIMGRID, name), 1) for name in ("build_s", "start_s")
    ]


def spread(values: Sequence[float], scale: float) -> str:
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


def _factor(value: float | None) -> str:
    return "" if value is None else three_digits(value)


def growth_lines(compared: Sequence[Compared]) -> list[str]:
    """The power of the number of subflows with which the time to the end grows, over the two
    largest sizes that both reached within a family."""
    name = "to_the_end_s"
    lines = []
    for family, cases in groupby(compared, key=lambda case: case.case.family):
        both = [case for case in cases if case.factor(name) is not None]
        if len(both) < 2:
            continue
        small, large = both[-2:]
        sizes = math.log(large.subflows / small.subflows)
        powers = [_log_ratio(large.median(side, name), small.median(side, name)) for side in Side]
        text = " and ".join(
            f"{power / sizes:.1f} ({side})" for side, power in zip(Side, powers, strict=True)
        )
        lines.append(
            f"- {family}: from {small.subflows:,} to {large.subflows:,} subflows the time to the "
            f"end grows with their power of {text}"
        )
    return lines


def _log_ratio(large: float | None, small: float | None) -> float:
    return math.log(large / small) if large and small else math.nan


def verdict(compared: Sequence[Compared]) -> list[str]:
    """Whether all answers of both agree."""
    pairs: list[float] = []
    for case in compared:
        pairs += [d for d in (case.rates_differ, case.ends_differ) if d is not None]
    worst = max(pairs, default=math.nan)
    word = "Agreement" if worst <= TARGET else "**No agreement**"
    return [f"{word}: no rate and no end differs by more than {worst:.1e}, target {TARGET:.0e}."]


def _table(head: Sequence[str], rows: Iterator[list[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]
