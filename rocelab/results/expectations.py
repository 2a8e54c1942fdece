"""What a drill expects of its figures, and whether the figures meet it.

Parses texts such as `<= 1s`, `0` or `>= 1.3 x one-qp` (another phase's figure) from a drill file
and judges the KPIs of each valid repeat, one verdict per expectation. An unmeasured figure never
meets an expectation, nor does one whose other phase was not measured.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rocelab.base.units import parse_duration_ns, parse_size_bytes
from rocelab.base.wording import shown
from rocelab.results.diagnosis import Cause
from rocelab.results.kpi import JOINED, Figures, KpiValue, Quantity
from rocelab.results.kpis import KPIS, format_kpi

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}
NOT_APPLICABLE = "not applicable"
"""What is shown of a KPI that does not apply to what ran."""

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
    Quantity.FINDING: "none, slow-receiver srv2-1, or a list with one for each job",
}


@dataclass(frozen=True, slots=True)
class Expectation:
    """A KPI compared with a limit. Durations are ns, sizes bytes, truths 0 or 1."""

    kpi: str
    comparison: str
    limit: float
    written: str
    """The text of the drill file, and what a finding must be."""

    of_phase: str | None = None
    """With it the limit is a factor, compared with the KPI over that of this other phase in the
    same repeat."""

    def met_by(self, compared: KpiValue) -> bool:
        """Whether `compared` meets it. None (not measured) never does."""
        if compared is None or isinstance(compared, str):
            return compared == self.written
        return _OPERATORS[self.comparison](float(compared), self.limit)


@dataclass(frozen=True, slots=True)
class Verdict:
    """An expectation and its outcome. `observed` is of the worst repeat, in the KPI's unit (ns,
    packets, ratio, truth, text); None if a repeat did not measure it, or if it does not apply to
    what ran (`applicable`)."""

    kpi: str
    expectation: str
    observed: KpiValue
    passed: bool
    applicable: bool = True

    def shown(self, resolution_ns: float = 0.0) -> str:
        """The observed value as text; a time that is not above `resolution_ns` as below it."""
        if not self.applicable:
            return NOT_APPLICABLE
        return format_kpi(self.kpi, self.observed, resolution_ns)


def parse_expectation(kpi: str, value: object) -> Expectation:
    """The expectation that a drill file states of `kpi`.

    A bare number, truth or finding means equality. Raises KeyError for an unknown KPI and
    ValueError for a value of another quantity.
    """
    quantity = KPIS[kpi].quantity
    wrong = ValueError(f"expected {_EXAMPLES[quantity]}, got {shown(value)}")
    if quantity is Quantity.TRUTH:
        if not isinstance(value, bool):
            raise wrong
        return Expectation(kpi, "==", float(value), str(value).lower())
    if quantity is Quantity.FINDING:
        written = JOINED.join(map(str, value if isinstance(value, list) else [value]))
        if not {part.partition(" ")[0] for part in written.split(JOINED)} <= set(Cause):
            raise wrong
        return Expectation(kpi, "==", 0.0, written)
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


def judge(
    expectations: Sequence[Expectation],
    repeats: Sequence[Figures],
    others: Sequence[Mapping[str, Figures]] = (),
) -> tuple[Verdict, ...]:
    """A verdict per expectation over the KPIs of all valid repeats: passed only if every repeat
    meets it, never without repeats.

    `others`: for each of `repeats` the KPIs of its valid phases by name. A repeat without the phase
    that an expectation compares with says nothing of it.
    """
    return tuple(_verdict(expectation, repeats, others) for expectation in expectations)


def stated(verdict: Verdict) -> Expectation:
    """The expectation of a verdict."""
    truth = KPIS[verdict.kpi].quantity is Quantity.TRUTH
    written = verdict.expectation
    return parse_expectation(verdict.kpi, written == "true" if truth else written)


def unmet(
    verdicts: Sequence[Verdict],
    repeat: Sequence[Figures],
    others: Sequence[Mapping[str, Figures]] = (),
) -> tuple[Verdict, ...]:
    """Verdicts of the expectations that the figures of one repeat do not meet, judged on this
    repeat alone; those of a KPI that is not registered here, whose figures are not known, are held
    against every repeat."""
    present = {None}.union(*others)
    wanted = [stated(verdict) for verdict in verdicts if verdict.kpi in KPIS]
    judged = judge(
        [expectation for expectation in wanted if expectation.of_phase in present], repeat, others
    )
    unknown = [verdict for verdict in verdicts if verdict.kpi not in KPIS]
    return tuple(verdict for verdict in (*judged, *unknown) if not verdict.passed)


def _verdict(
    expectation: Expectation,
    repeats: Sequence[Figures],
    others: Sequence[Mapping[str, Figures]],
) -> Verdict:
    phase = expectation.of_phase
    if phase is not None:
        both = [
            (repeat, phases[phase])
            for repeat, phases in zip(repeats, others, strict=True)
            if phase in phases
        ]
        repeats = [repeat for repeat, _ in both]
    compared = values = [repeat.get(expectation.kpi) for repeat in repeats]
    if phase is not None:
        references = [reference.get(expectation.kpi) for _, reference in both]
        compared = [_over(value, of) for value, of in zip(values, references, strict=True)]
    known = [value for value in compared if value is not None]
    if not known or len(known) < len(compared):
        applies = not repeats or any(expectation.kpi in repeat for repeat in repeats)
        return Verdict(expectation.kpi, expectation.written, None, False, applies)
    worst = _worst(expectation, known)
    observed = values[compared.index(worst)]
    return Verdict(expectation.kpi, expectation.written, observed, expectation.met_by(worst))


def _over(value: KpiValue, reference: KpiValue) -> float | None:
    """The ratio; None if either was not measured or the reference is 0."""
    if isinstance(value, int | float) and isinstance(reference, int | float) and reference:
        return value / reference
    return None


def _worst(expectation: Expectation, known: Sequence[KpiValue]) -> KpiValue:
    """The value that is worst for the expectation, of those that were measured."""
    values = [value for value in known if isinstance(value, int | float)]
    if not values:
        return next((text for text in known if not expectation.met_by(text)), known[0])
    match expectation.comparison:
        case "<=" | "<":
            return max(values)
        case ">=" | ">":
            return min(values)
        case _:
            return max(values, key=lambda value: abs(value - expectation.limit))
