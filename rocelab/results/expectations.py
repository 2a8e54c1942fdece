"""What a drill expects of its figures, and whether they came true.

In: texts such as `<= 1s`, `0` or `>= 1.3 x one-qp` (another phase's figure) from a drill file, and
the KPIs of each valid repeat. Out: one verdict per expectation. A figure that was not measured
never meets an expectation, nor does one whose other phase was not.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rocelab.units import format_duration, parse_duration_ns, parse_size_bytes
from rocelab.wording import shown

KpiValue = int | float | bool | None


class Quantity(StrEnum):
    """What a KPI is measured in: durations are nanoseconds, counts whole numbers, sizes bytes,
    bandwidths GB/s (10^9 bytes)."""

    DURATION = "duration"
    COUNT = "count"
    SIZE = "size"
    BANDWIDTH = "bandwidth"
    RATIO = "ratio"
    TRUTH = "truth"


UNITS = {
    Quantity.DURATION: "ns",
    Quantity.COUNT: "count",
    Quantity.SIZE: "bytes",
    Quantity.BANDWIDTH: "GB/s",
    Quantity.RATIO: "ratio",
    Quantity.TRUTH: "truth",
}
"""How documents name what a KPI is measured in; a truth is 0 or 1 in figures."""


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
            "Max-mean ratio, leaf uplinks",
            "busiest over mean load of all leaf uplinks, under the lab's own hashing, undisturbed",
        ),
        Kpi(
            "uplink_jfi",
            Quantity.RATIO,
            "Jain's index, leaf uplinks",
            "fairness of the loads of all leaf uplinks, under the lab's own hashing, undisturbed",
        ),
    )
}
"""The figures of a drill with faults."""

JOB_KPIS: dict[str, Kpi] = {
    kpi.name: kpi
    for kpi in (
        Kpi(
            "completed",
            Quantity.TRUTH,
            "Completed",
            "no queue pair failed, and every byte posted was acknowledged and delivered once",
        ),
        Kpi(
            "accounted",
            Quantity.TRUTH,
            "Counters agree",
            "switches, NICs and endpoints counted the same packets, marks and CNPs",
        ),
        Kpi(
            "busbw",
            Quantity.BANDWIDTH,
            "Bus bandwidth",
            "nccl-tests' busbw of the modelled network, median of the measured iterations",
        ),
        Kpi(
            "jct_ratio",
            Quantity.RATIO,
            "JCT ratio",
            "time of an iteration over the least that the NICs allow, median",
        ),
        Kpi(
            "goodput",
            Quantity.BANDWIDTH,
            "Goodput",
            "payload acknowledged to all senders of streams, modelled, once all of them send",
        ),
        Kpi(
            "dropped_packets",
            Quantity.COUNT,
            "Packets dropped",
            "did not fit the buffer of a switch port, data and control together",
        ),
        Kpi(
            "retransmitted_packets",
            Quantity.COUNT,
            "Packets retransmitted",
            "data packets sent again after a NAK or a timeout (go-back-N)",
        ),
        Kpi("naks", Quantity.COUNT, "NAKs", "sequence errors that receivers told senders"),
        Kpi(
            "timeouts",
            Quantity.COUNT,
            "ACK timeouts",
            "times that a sender waited for an ACK in vain (local ACK timeout)",
        ),
        Kpi(
            "switch_marks",
            Quantity.COUNT,
            "CE marks by switches",
            "packets that switch ports marked",
        ),
        Kpi(
            "marks_outside_data",
            Quantity.COUNT,
            "CE marks in other queues",
            "marks in queues of another traffic class than the data's",
        ),
        Kpi(
            "ce_packets",
            Quantity.COUNT,
            "CE packets received",
            "data packets that reached their receiver with a mark",
        ),
        Kpi("cnps", Quantity.COUNT, "CNPs", "congestion notifications that senders received"),
        Kpi(
            "class_5_packets",
            Quantity.COUNT,
            "Packets in class 5",
            "entered queues of traffic class 5, that of CNPs, at all switch ports",
        ),
        Kpi(
            "class_6_packets",
            Quantity.COUNT,
            "Packets in class 6",
            "entered queues of traffic class 6, that of ACKs and NAKs, at all switch ports",
        ),
        Kpi(
            "queue_max",
            Quantity.SIZE,
            "Deepest data queue",
            "most bytes that a packet met in a switch port's queue of the data's traffic class",
        ),
        Kpi(
            "rtt_p50",
            Quantity.DURATION,
            "Round trip, median",
            "data packet to ACK as the sender sees it, modelled",
        ),
        Kpi("rtt_p99", Quantity.DURATION, "Round trip, p99", "the same, 99th percentile, modelled"),
        Kpi(
            "rate_ratio",
            Quantity.RATIO,
            "Fastest over slowest sender",
            "of streams, over the second half of the time when all of them send",
        ),
        Kpi(
            "sender_jfi",
            Quantity.RATIO,
            "Jain's index of senders",
            "fairness of the same rates: 1 is even",
        ),
        Kpi(
            "time_to_fairness",
            Quantity.DURATION,
            "Time to fair shares",
            "from the last start until every sender stays within 10 % of the mean, modelled",
        ),
        Kpi(
            "model_time_to_fairness",
            Quantity.DURATION,
            "Time to fair shares, model",
            "the same of the numerical model, median of its seeds",
        ),
        Kpi(
            "time_to_fairness_ratio",
            Quantity.RATIO,
            "Lab over model",
            "time to fair shares in the lab over the model's median",
        ),
        Kpi(
            "jct_overhead",
            Quantity.RATIO,
            "JCT overhead of the failed iteration",
            "the iteration in which the first fault began over the median of those before, less 1",
        ),
        Kpi(
            "zero_impact",
            Quantity.TRUTH,
            "Zero impact",
            "the overhead is at most 5 %, by its 95 % bounds; not measured where those do not tell",
        ),
        KPIS["uplink_mmr"],
        KPIS["uplink_jfi"],
        Kpi(
            "unused_links",
            Quantity.RATIO,
            "Links unused",
            "fraction of the links between switches, each direction by itself, that carried none",
        ),
        Kpi(
            "nic_port_share",
            Quantity.RATIO,
            "Busier port of a NIC",
            "share of packets that came in by a NIC's busier port of two, worst NIC: 0.5 is even",
        ),
    )
}
"""The figures of a phase of a drill with jobs."""

_KPIS = {**KPIS, **JOB_KPIS}

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
_RELATIVE = re.compile(r"(?P<factor>[0-9]{1,6}(\.[0-9]{1,9})?) x (?P<phase>[a-z][a-z0-9-]*)")
_COMPARISON = re.compile(r"\s*(?P<operator><=|>=|==|<|>)?\s*(?P<limit>\S.*?)\s*")
_NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?")
_EXAMPLES = {
    Quantity.DURATION: '"<= 1s" or "< 300ms"',
    Quantity.COUNT: '0 or "<= 500"',
    Quantity.SIZE: '"<= 3MB"',
    Quantity.BANDWIDTH: '">= 40" (GB/s)',
    Quantity.RATIO: '">= 0.9" or "<= 2.5"',
    Quantity.TRUTH: "true or false",
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """`kpi` compared with `limit` by `comparison`; durations in ns, sizes in bytes, truths as 0 or
    1. `written` is what the drill file says. With `of_phase` the limit is a factor, and what is
    compared with it is `kpi` over that of the other phase in the same repeat."""

    kpi: str
    comparison: str
    limit: float
    written: str
    of_phase: str | None = None

    def met_by(self, compared: KpiValue) -> bool:
        """Whether `compared` meets it. None, not measured, never does."""
        return compared is not None and _OPERATORS[self.comparison](float(compared), self.limit)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An expectation and what came of it. `observed` is of the repeat that did worst, in the KPI's
    unit (ns, packets, ratio, truth); None where a repeat did not measure it, or where it does not
    apply to what ran (`applicable`)."""

    kpi: str
    expectation: str
    observed: KpiValue
    passed: bool
    applicable: bool = True

    def shown(self) -> str:
        """What was observed, as people say it."""
        return format_kpi(self.kpi, self.observed) if self.applicable else "not applicable"


def kpi_named(name: str) -> Kpi:
    """The KPI of that name, of either kind of drill. Raises KeyError on an unknown one."""
    return _KPIS[name]


def parse_expectation(kpi: str, value: object) -> Expectation:
    """The expectation that a drill file states of `kpi`.

    A bare number or truth means equality. Raises KeyError on an unknown KPI, and ValueError on a
    value that is not of the KPI's quantity.
    """
    quantity = kpi_named(kpi).quantity
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
    relative = _RELATIVE.fullmatch(match["limit"])
    if relative is not None and match["operator"] in (">=", "<=", "<", ">"):
        factor, phase = float(relative["factor"]), relative["phase"]
        return Expectation(kpi, match["operator"], factor, str(value).strip(), phase)
    limit = _limit(match["limit"], quantity, wrong)
    return Expectation(kpi, match["operator"] or "==", limit, str(value).strip())


def _limit(text: str, quantity: Quantity, wrong: ValueError) -> float:
    parse = {Quantity.DURATION: parse_duration_ns, Quantity.SIZE: parse_size_bytes}.get(quantity)
    if parse is not None:
        try:
            return float(parse(text))
        except ValueError:
            raise wrong from None
    if not _NUMBER.fullmatch(text) or (quantity is Quantity.COUNT and "." in text):
        raise wrong
    return float(text)


Figures = Mapping[str, KpiValue]


def judge(
    expectations: Sequence[Expectation],
    repeats: Sequence[Figures],
    others: Sequence[Mapping[str, Figures]] = (),
) -> tuple[Verdict, ...]:
    """A verdict per expectation over the KPIs of all valid repeats: passed only where every one of
    them meets it, and never where there is none.

    `others`: for each of `repeats` the KPIs of its valid phases by name.
    """
    return tuple(_verdict(expectation, repeats, others) for expectation in expectations)


def stated(verdict: Verdict) -> Expectation:
    """The expectation that a verdict is of."""
    truth = kpi_named(verdict.kpi).quantity is Quantity.TRUTH
    written = verdict.expectation
    return parse_expectation(verdict.kpi, written == "true" if truth else written)


def unmet(
    verdicts: Sequence[Verdict],
    repeat: Sequence[Figures],
    others: Sequence[Mapping[str, Figures]] = (),
) -> tuple[Verdict, ...]:
    """Of the expectations that `verdicts` are of, those that the figures of one repeat do not meet:
    as `judge` has them, of this repeat alone."""
    judged = judge([stated(verdict) for verdict in verdicts], repeat, others)
    return tuple(verdict for verdict in judged if not verdict.passed)


def _verdict(
    expectation: Expectation,
    repeats: Sequence[Figures],
    others: Sequence[Mapping[str, Figures]],
) -> Verdict:
    values = [repeat.get(expectation.kpi) for repeat in repeats]
    compared = values
    if expectation.of_phase is not None:
        references = [
            phases.get(expectation.of_phase, {}).get(expectation.kpi) for phases in others
        ]
        compared = [_over(value, of) for value, of in zip(values, references, strict=True)]
    known = [each for each in compared if each is not None]
    if not known or len(known) < len(compared):
        applies = not repeats or any(expectation.kpi in repeat for repeat in repeats)
        return Verdict(expectation.kpi, expectation.written, None, False, applies)
    worst = _worst(expectation, known)
    observed = values[compared.index(worst)]
    return Verdict(expectation.kpi, expectation.written, observed, expectation.met_by(worst))


def _over(value: KpiValue, reference: KpiValue) -> float | None:
    """None where either was not measured or there is nothing to divide by."""
    return value / reference if value is not None and reference else None


def _worst(expectation: Expectation, values: Sequence[float | bool]) -> float | bool:
    """The value that is hardest on the expectation."""
    match expectation.comparison:
        case "<=" | "<":
            return max(values)
        case ">=" | ">":
            return min(values)
        case _:
            return max(values, key=lambda value: abs(value - expectation.limit))


def format_kpi(kpi: str, value: KpiValue, resolution_ns: float = 0.0) -> str:
    """`value` as people say it, in the unit of `kpi`; `not measured` for None. A time that is not
    above `resolution_ns` is said to be below it."""
    if value is None:
        return "not measured"
    if kpi_named(kpi).quantity is Quantity.DURATION and value <= resolution_ns:
        return f"< {format_duration(resolution_ns)}"
    match kpi_named(kpi).quantity:
        case Quantity.DURATION:
            return format_duration(float(value))
        case Quantity.COUNT:
            return f"{value:,.0f}"
        case Quantity.SIZE:
            return f"{value / 1000:,.0f} KB"
        case Quantity.BANDWIDTH:
            return f"{value:.3g} GB/s"
        case Quantity.RATIO:
            return f"{value:.3g}"
        case Quantity.TRUTH:
            return "yes" if value else "no"
