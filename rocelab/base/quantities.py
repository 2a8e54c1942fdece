"""Quantities as people read them: `29.4 ms`, `1.44 GB`, `400 Gb/s`, `45.2 GB/s`, `0.4%`.

The only formatter: terminals, pages, Markdown and JUnit use it, and `live/page/quantities.js` is
the same in JavaScript; `tests/data/quantities.json` has what both must write. Prefixes are decimal
(a kB is 1,000 bytes) but for `Unit.MEMORY` (a MiB is 1,048,576 bytes). `rocelab.base.units` has
the notation of lab files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from enum import StrEnum


class Unit(StrEnum):
    """The unit of a number, by the name that documents give it.

    TEXT, FIGURE: text, the latter of figures, which stand right. NUMBER: a number that counts
    nothing, such as a port. SHARE: of 1, written in percent.
    """

    TEXT = "text"
    FIGURE = "figure"
    NUMBER = "number"
    COUNT = "count"
    NS = "ns"
    SECONDS = "s"
    BYTES = "bytes"
    MEMORY = "bytes of memory"
    BITS_PER_S = "bit/s"
    GB_PER_S = "GB/s"
    PER_S = "1/s"
    PACKETS_PER_S = "packets/s"
    TOKENS_PER_S = "tokens/s"
    SHARE = "share"
    RATIO = "ratio"


BPS_PER_GBS = 8 * 10**9
"""bit/s of a GB/s: rates of links are in Gb/s, what jobs get (busbw, goodput) in GB/s."""

_S = 10**9
_TIMES = (
    # name, nanoseconds, used from
    ("d", 86_400 * _S, 48 * 3_600 * _S),
    ("h", 3_600 * _S, 3_600 * _S),
    ("min", 60 * _S, 120 * _S),
    ("s", _S, _S),
    ("ms", 10**6, 10**6),
    ("us", 10**3, 10**3),
    ("ns", 1, 0),
)
_LEAST_PERCENT = 0.01
_LEAST_WITHOUT = 999.995
"""From here on ratios have no decimals."""
_LEAST_WHOLE = 0.01


def _prefixed(unit: str, thousand: int, *prefixes: str) -> tuple[tuple[str, int, int], ...]:
    scales = [(f"{p}{unit}", thousand**power) for power, p in enumerate(prefixes, 1)]
    return (*((name, scale, scale) for name, scale in reversed(scales)), (unit, 1, 0))


_SIZES = _prefixed("B", 1000, "k", "M", "G", "T", "P")
_MEMORIES = _prefixed("B", 1024, "Ki", "Mi", "Gi", "Ti")
_RATES = _prefixed("b/s", 1000, "k", "M", "G", "T", "P")


def formatted(value: float, unit: Unit, resolution: float = 0.0) -> str:
    """`value` with its unit; one that is not above a `resolution` is written as below it."""
    if resolution > 0 and value <= resolution:
        return f"< {formatted(resolution, unit)}"
    return _FORMS[unit](value)


def in_unit(value: float, unit: str) -> str:
    """`value` in a unit that a document names, be it one of `Unit` or not: `410.20 TFLOP/s`."""
    if not unit:
        return ratio(value)
    if unit == "%":
        return share(value / 100)
    return formatted(value, Unit(unit)) if unit in set(Unit) else f"{ratio(value)} {unit}"


def duration(value_ns: float) -> str:
    """Nanoseconds to three digits: `35.4 ms`, `1.2 s`, `2.5 h`, `0`."""
    return "0" if value_ns == 0 else _scaled(value_ns, _TIMES)


def size(value_bytes: float) -> str:
    """Bytes to three digits: `1.44 GB`, `6 kB`."""
    return _scaled(value_bytes, _SIZES)


def memory(value_bytes: float) -> str:
    """Bytes to three digits in powers of 1,024: `14.2 MiB`."""
    return _scaled(value_bytes, _MEMORIES)


def rate(value_bps: float) -> str:
    """Bits per second to three digits, as links have them: `400 Gb/s`."""
    return _scaled(value_bps, _RATES)


def bandwidth(value_gbs: float) -> str:
    """GB/s to three digits, as jobs have them: `45.2 GB/s`."""
    return f"{_plain(_rounded(value_gbs))} GB/s"


def count(value: float) -> str:
    """A whole number: `32,256`."""
    return f"{_decimal(value, 0):,}"


def share(value: float) -> str:
    """A share of 1 in percent, with a decimal, below 1% with two: `67%`, `4.2%`, `0.42%`."""
    percent = 100 * value
    if 0 < percent < _LEAST_PERCENT:
        return f"< {_LEAST_PERCENT}%"
    # No -0%.
    return f"{_plain(float(_decimal(percent, 2 if abs(percent) < 1 else 1)) + 0.0)}%"


def whole_share(value: float) -> str:
    """A share in whole percent, below 1% with decimals: `67%`, `0.42%`; for sentences."""
    return share(value) if abs(value) < _LEAST_WHOLE else f"{_decimal(100 * value, 0)}%"


def change(value: float) -> str:
    """A change as a share of what was before: `+33.3%`, `-7%`."""
    return f"{'-' if value < 0 else '+'}{share(abs(value))}"


def ratio(value: float) -> str:
    """A number without a unit, with two decimals, below 1 to three digits, from 1,000 without any:
    `1.08`, `0.987`, `176,008`."""
    if abs(value) >= _LEAST_WITHOUT:
        return f"{_decimal(value, 0):,.0f}"
    if value == 0 or abs(value) >= 1:
        return f"{_decimal(value, 2):,}"
    rounded = f"{_rounded(value):.12f}".rstrip("0")
    return f"{rounded}{'0' * (2 - len(rounded.partition('.')[2]))}"


def axis_unit(most: float, unit: Unit) -> tuple[float, str]:
    """What an axis up to `most` is divided by, and the name of its unit, empty for a number."""
    scales = {Unit.NS: _TIMES, Unit.BYTES: _SIZES, Unit.BITS_PER_S: _RATES}.get(unit)
    if scales is None:
        return 1.0, unit if unit is Unit.GB_PER_S else ""
    name, scale = next((name, scale) for name, scale, least in scales if most >= least)
    return scale, name


def tick(value: float) -> str:
    """A number on an axis, already divided by its unit: `0`, `2.5`, `2,000`."""
    return _plain(0.0 if abs(value) < 1e-12 else value)


def _decimal(value: float, decimals: int) -> Decimal:
    """Rounded as JavaScript's toFixed does it: halves away from 0."""
    return Decimal(value).quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)


def _rounded(value: float) -> float:
    """To three significant digits, as JavaScript's toPrecision does it."""
    exact = Decimal(value)
    if not exact:
        return 0.0
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 2), ROUND_HALF_UP))


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.12g}"


def _scaled(value: float, units: tuple[tuple[str, int, int], ...]) -> str:
    """In the first unit that is used from as little, of those in falling order."""
    rounded = _rounded(value)
    name, scale = next((name, scale) for name, scale, least in units if abs(rounded) >= least)
    return f"{_plain(_rounded(value / scale))} {name}"


_FORMS: Mapping[Unit, Callable[[float], str]] = {
    Unit.TEXT: str,
    Unit.FIGURE: str,
    Unit.NUMBER: str,
    Unit.COUNT: count,
    Unit.NS: duration,
    Unit.SECONDS: lambda value: duration(value * _S),
    Unit.BYTES: size,
    Unit.MEMORY: memory,
    Unit.BITS_PER_S: rate,
    Unit.GB_PER_S: bandwidth,
    Unit.PER_S: lambda value: f"{count(value)}/s",
    Unit.PACKETS_PER_S: lambda value: f"{count(value)} packets/s",
    Unit.TOKENS_PER_S: lambda value: f"{count(value)} tokens/s",
    Unit.SHARE: share,
    Unit.RATIO: ratio,
}
