"""What a drill expects of its figures, and whether they came true.

In: texts such as `<= 1s` or `0` from a drill file, and the KPIs of each valid repeat. Out: one
verdict per expectation. A figure that was not measured never meets an expectation.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from labs.spec.wording import shown
from labs.units import format_duration, parse_duration_ns

KpiValue = int | float | bool | None


class Quantity(StrEnum):
    """What a KPI is measured in: durations are nanoseconds, counts whole numbers."""

    DURATION = "duration"
    COUNT = "count"
    RATIO = "ratio"
    TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class Kpi:
    """A figure that a drill reports and that a drill file may expect something of."""

    name: str
    quantity: Quantity
    title: str
    meaning: str


KPIS: dict[str, Kpi] = {
    kpi.name: kpi
    for kpi in (
        Kpi(
            "restored",
            Quantity.TRUTH,
            "Restored",
            "every affected flow recovered, and no flow ended in an outage",
        ),
        Kpi(
            "full_convergence",
            Quantity.DURATION,
            "Full convergence",
            "event to recovery of the last affected flow (RFC 6412 section 3.6.1), worst event",
        ),
        Kpi(
            "first_route_convergence",
            Quantity.DURATION,
            "First route convergence",
            "event to recovery of the first affected flow (RFC 6412 section 3.6.2), worst event",
        ),
        Kpi(
            "loss_derived_convergence",
            Quantity.DURATION,
            "Loss-derived convergence",
            "packets lost over the rate offered to the affected flows (RFC 6412 section 3.6.4)",
        ),
        Kpi(
            "rate_derived_convergence",
            Quantity.DURATION,
            "Rate-derived convergence",
            "event until throughput is back and stays (RFC 6412 section 3.5.1), last affected flow",
        ),
        Kpi(
            "loss_of_connectivity",
            Quantity.DURATION,
            "Longest loss of connectivity",
            "longest Route Loss of Connectivity Period of any flow (RFC 6412 section 3.6.5)",
        ),
        Kpi(
            "affected_flows",
            Quantity.COUNT,
            "Flows affected",
            "flows that lost packets to an event",
        ),
        Kpi("lost_packets", Quantity.COUNT, "Packets lost", "sent and never received"),
        Kpi(
            "lost_outside_events",
            Quantity.COUNT,
            "Lost outside events",
            "packets lost at times that no event accounts for",
        ),
        Kpi(
            "reordered_packets",
            Quantity.COUNT,
            "Packets reordered",
            "arrived after a packet sent later (RFC 4737 section 3.3)",
        ),
        Kpi(
            "duplicated_packets",
            Quantity.COUNT,
            "Packets duplicated",
            "further copies of packets that had arrived (RFC 5560)",
        ),
        Kpi(
            "uplink_mmr",
            Quantity.RATIO,
            "Max-mean ratio, RTSW uplinks",
            "busiest over mean load of all RTSW uplinks, under the lab's own hashing, undisturbed",
        ),
        Kpi(
            "uplink_jfi",
            Quantity.RATIO,
            "Jain's index, RTSW uplinks",
            "fairness of the loads of all RTSW uplinks, under the lab's own hashing, undisturbed",
        ),
    )
}

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_COMPARISON = re.compile(r"\s*(?P<operator><=|>=|==|<|>)?\s*(?P<limit>\S.*?)\s*")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_EXAMPLES = {
    Quantity.DURATION: '"<= 1s" or "< 300ms"',
    Quantity.COUNT: '0 or "<= 500"',
    Quantity.RATIO: '">= 0.9" or "<= 2.5"',
    Quantity.TRUTH: "true or false",
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """`kpi` compared with `limit` by `comparison`; durations in ns, truths as 0 or 1. `written` is
    what the drill file says."""

    kpi: str
    comparison: str
    limit: float
    written: str

    def met_by(self, observed: KpiValue) -> bool:
        """Whether `observed` meets it. None, not measured, never does."""
        return observed is not None and _OPERATORS[self.comparison](float(observed), self.limit)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An expectation and what came of it. `observed` is of the repeat that did worst, in the KPI's
    unit (ns, packets, ratio, truth); None where a repeat did not measure it."""

    kpi: str
    expectation: str
    observed: KpiValue
    passed: bool


def parse_expectation(kpi: str, value: object) -> Expectation:
    """The expectation that a drill file states of `kpi`.

    A bare number or truth means equality. Raises KeyError on an unknown KPI, and ValueError on a
    value that is not of the KPI's quantity.
    """
    quantity = KPIS[kpi].quantity
    wrong = ValueError(f"expected {_EXAMPLES[quantity]}, got {shown(value)}")
    if quantity is Quantity.TRUTH:
        if not isinstance(value, bool):
            raise wrong
        return Expectation(kpi, "==", float(value), str(value).lower())
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise wrong
    match = _COMPARISON.fullmatch(str(value))
    if match is None:
        raise wrong
    limit = _limit(match["limit"], quantity, wrong)
    return Expectation(kpi, match["operator"] or "==", limit, str(value).strip())


def _limit(text: str, quantity: Quantity, wrong: ValueError) -> float:
    if quantity is Quantity.DURATION:
        try:
            return float(parse_duration_ns(text))
        except ValueError:
            raise wrong from None
    if not _NUMBER.fullmatch(text) or (quantity is Quantity.COUNT and "." in text):
        raise wrong
    return float(text)


def judge(
    expectations: Sequence[Expectation], repeats: Sequence[Mapping[str, KpiValue]]
) -> tuple[Verdict, ...]:
    """A verdict per expectation over the KPIs of all valid repeats: passed only where every one of
    them meets it, and never where there is none."""
    return tuple(_verdict(expectation, repeats) for expectation in expectations)


def _verdict(expectation: Expectation, repeats: Sequence[Mapping[str, KpiValue]]) -> Verdict:
    values = [repeat.get(expectation.kpi) for repeat in repeats]
    known = [value for value in values if value is not None]
    observed = _worst(expectation, known) if known and len(known) == len(values) else None
    return Verdict(expectation.kpi, expectation.written, observed, expectation.met_by(observed))


def _worst(expectation: Expectation, values: Sequence[float | bool]) -> float | bool:
    """The value that is hardest on the expectation."""
    match expectation.comparison:
        case "<=" | "<":
            return max(values)
        case ">=" | ">":
            return min(values)
        case _:
            return max(values, key=lambda value: abs(value - expectation.limit))


def format_kpi(kpi: str, value: KpiValue) -> str:
    """`value` as people say it, in the unit of `kpi`; `not measured` for None."""
    if value is None:
        return "not measured"
    match KPIS[kpi].quantity:
        case Quantity.DURATION:
            return format_duration(float(value))
        case Quantity.COUNT:
            return f"{value:,.0f}"
        case Quantity.RATIO:
            return f"{value:.3g}"
        case Quantity.TRUTH:
            return "yes" if value else "no"
