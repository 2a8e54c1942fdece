"""Quantities as lab files have them: `400G`, `800KB`, `50ms`; `quantities` has those of reports.

Each parser takes the text of a spec and returns a whole number in the base unit in its name. Rates
are decimal (1G = 10^9 bit/s); sizes are decimal (1KB = 1,000 bytes) or binary (1KiB = 1,024 bytes),
as switch data sheets write them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from rocelab.base.wording import RefusedError, shown


@dataclass(frozen=True, eq=False)
class UnitScale:
    """A kind of quantity: its units, each with its number of base units.

    The units are in the order in which `written` tries them. `unit_ending` is a pattern of what may
    follow a unit.
    """

    expected: str
    base_unit: str
    hint: str
    units: Mapping[str, int]
    examples: tuple[str, ...]
    unit_ending: str = ""

    @cached_property
    def pattern(self) -> str:
        """A regular expression, the same in Python and ECMAScript, of the texts accepted."""
        names = "|".join(sorted(self.units, key=len, reverse=True))
        return rf"^([0-9]{{1,15}}(\.[0-9]{{1,9}})?) ?({names}){self.unit_ending}$"

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern[1:-1])

    def parse(self, text: object) -> int:
        """The quantity in base units. Raises RefusedError, a ValueError, for anything else."""
        match = self._compiled.fullmatch(text) if isinstance(text, str) else None
        if match is None:
            raise RefusedError(f"expected {self.expected}, got {shown(text)}", self.hint)
        value = Decimal(match[1]) * self.units[match[3]]
        if value != int(value):
            raise RefusedError(
                f"expected a whole number of {self.base_unit}, got {shown(text)}", self.hint
            )
        return int(value)

    def written(self, value: int) -> str:
        """The text that `parse` reads as `value` base units, in the first unit that is exact."""
        for unit, scale in self.units.items():
            if value >= scale and value % scale == 0:
                return f"{value // scale}{unit}"
        smallest = min(self.units, key=self.units.__getitem__)
        return f"{value}{smallest}"


RATE = UnitScale(
    expected="a rate such as 400G, 25G or 100M",
    base_unit="bits per second",
    hint="a rate is bits per second: a number and k, M, G or T",
    units={"T": 10**12, "G": 10**9, "M": 10**6, "k": 10**3, "K": 10**3, "": 1},
    examples=("400G", "25G"),
    unit_ending="(bps|bit/s|b/s|bit|bE|b|E)?",
)
SIZE = UnitScale(
    expected="a size such as 800KB, 16MB or 64KiB",
    base_unit="bytes",
    hint="a size is bytes: a number and B, kB or KB, MB, GB (powers of 1,000) or KiB, MiB, GiB "
    "(powers of 1,024)",
    units={
        "GB": 10**9,
        "MB": 10**6,
        "KB": 10**3,
        "kB": 10**3,
        "GiB": 2**30,
        "MiB": 2**20,
        "KiB": 2**10,
        "B": 1,
    },
    examples=("800KB", "64KiB"),
)
DURATION = UnitScale(
    expected="a duration such as 50ms, 3s or 300us",
    base_unit="nanoseconds",
    hint="a duration is a number and ns, us, ms, s or m (minutes)",
    units={"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1, "m": 60 * 10**9},
    examples=("50ms", "3s"),
)
BANDWIDTH = UnitScale(
    expected="a bandwidth such as 450GB/s or 3.35TB/s",
    base_unit="bytes per second",
    hint="a bandwidth is bytes per second: a number and MB/s, GB/s or TB/s",
    units={"TB/s": 10**12, "GB/s": 10**9, "MB/s": 10**6},
    examples=("450GB/s", "3.35TB/s"),
)
SHARE = UnitScale(
    expected="a share such as 5% or 200ppm",
    base_unit="parts per million",
    hint="a share is a number and %, or ppm (parts per million)",
    units={"%": 10**4, "ppm": 1},
    examples=("5%", "200ppm"),
)


def parse_rate_bps(text: object) -> int:
    """Bits per second from `400G`, `25Gbps`, `100M`. Raises ValueError for anything else."""
    return RATE.parse(text)


def parse_size_bytes(text: object) -> int:
    """Bytes from `800KB`, `16MB`, `64KiB`. Raises ValueError for anything else."""
    return SIZE.parse(text)


def parse_duration_ns(text: object) -> int:
    """Nanoseconds from `50ms`, `3s`, `300us`. Raises ValueError for anything else."""
    return DURATION.parse(text)


def _schema(quantity: UnitScale) -> WithJsonSchema:
    """The JSON Schema of a quantity, so that an editor checks what the parser checks."""
    return WithJsonSchema(
        {"type": "string", "pattern": quantity.pattern, "examples": list(quantity.examples)}
    )


def _as_written(quantity: UnitScale) -> PlainSerializer:
    """A spec's JSON holds quantities with units, so that it reads back."""
    return PlainSerializer(quantity.written, return_type=str, when_used="json")


# The Quantity in each annotation lets error messages and the schema write limits and defaults
# as a person would.
RateBps = Annotated[int, BeforeValidator(parse_rate_bps), RATE, _schema(RATE), _as_written(RATE)]
SizeBytes = Annotated[
    int, BeforeValidator(parse_size_bytes), SIZE, _schema(SIZE), _as_written(SIZE)
]
DurationNs = Annotated[
    int, BeforeValidator(parse_duration_ns), DURATION, _schema(DURATION), _as_written(DURATION)
]
SharePpm = Annotated[int, BeforeValidator(SHARE.parse), SHARE, _schema(SHARE), _as_written(SHARE)]
BytesPerSecond = Annotated[
    int,
    BeforeValidator(BANDWIDTH.parse),
    BANDWIDTH,
    _schema(BANDWIDTH),
    _as_written(BANDWIDTH),
]
