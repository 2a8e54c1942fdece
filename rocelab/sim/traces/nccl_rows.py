"""The rows that nccl-tests and rccl-tests print, and the tests that they belong to.

Every number keeps the rounding with which it was printed, so that a row can be checked against
itself: `rocelab.sim.traces.nccl_checks` does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation

from rocelab.base.errors import Problem

_SIZE = re.compile(r"[0-9]{1,18}")
_NOTHING = ("", "N/A", "n/a")
ELEMENT_BYTES = {
    **dict.fromkeys(("int8", "uint8", "char"), 1),
    **dict.fromkeys(("f8e4m3", "f8e5m2", "fp8_e4m3", "fp8_e5m2"), 1),
    **dict.fromkeys(("half", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "int", "float"), 4),
    **dict.fromkeys(("int64", "uint64", "double"), 8),
}
"""Bytes of an element of each type, by the name that is printed (src/common.cu)."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """Half a unit of the last digit with which each number of a timing was printed."""

    time_us: float = 0.0
    algbw_gbs: float = 0.0
    busbw_gbs: float = 0.0


@dataclass(frozen=True, slots=True)
class NcclTiming:
    """One half of a row. GB/s are 10^9 bytes."""

    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: float | None
    """Wrong elements, or in old versions the largest error; None if not checked."""
    rounding: Rounding = Rounding()


@dataclass(frozen=True, slots=True)
class NcclRow:
    """One size."""

    line: int | None
    size_bytes: int
    count: int | None
    type: str | None
    """None if the version does not print them."""
    redop: str | None
    """None if the version does not print them."""
    root: int | None
    """None if the version does not print them."""
    out_of_place: NcclTiming | None
    in_place: NcclTiming | None
    key: str = ""
    """The row's place in a JSON document, which has no lines."""

    @property
    def timing(self) -> NcclTiming:
        """The out-of-place timing, or the in-place one if there is no other."""
        timing = self.out_of_place or self.in_place
        assert timing is not None
        return timing

    @property
    def parts(self) -> int | None:
        """How many times `count` elements the size is: the ranks of a collective that divides its
        buffer, 1 of others. None if the row does not say it."""
        part = (self.count or 0) * ELEMENT_BYTES.get(self.type or "", 0)
        return self.size_bytes // part if part and self.size_bytes % part == 0 else None

    @property
    def timings(self) -> tuple[NcclTiming, ...]:
        """Every timing of the row."""
        return tuple(timing for timing in (self.out_of_place, self.in_place) if timing is not None)


@dataclass(slots=True)
class NcclRecording:
    """One run of a program as its output shows it, while it is read."""

    line: int | None = None
    """Its first."""
    name: str | None = None
    """The collective, as `alltoall`, if the output says it."""
    ranks: int | None = None
    """The highest rank that is listed plus one, and its line."""
    ranks_line: int | None = None
    ranks_are_exact: bool = False
    """Whether the list has every rank up to the highest."""
    per_process: int | None = None
    """nThread x nGpus, a divisor of all."""
    devices: dict[int, int] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    listed_twice: tuple[int, int, int] | None = None
    """Ranks that stand in the list twice, with their lines."""
    is_list_cut: bool = False
    header_line: int | None = None
    headed_twice: int | None = None
    counts_wrong: bool = True
    """Whether `wrong` counts elements; it is a floating-point error in versions before 2.12."""
    failed: int | None = None
    """The line that says that a check failed."""
    failed_key: str = ""
    broken: int | None = None
    """The line that says that an error ended the test."""
    is_cpu_time: bool = False
    """Times are those of the CPU that launched (`-C`)."""
    rows: list[NcclRow] = field(default_factory=list)


def place(source: str, row: NcclRow, message: str, hint: str | None = None) -> Problem:
    """A problem of a row."""
    return Problem(source, row.line, row.key, message, hint)


def size_of(text: str) -> int:
    """A number of bytes. Raises ValueError."""
    if not _SIZE.fullmatch(text):
        raise ValueError(f"expected a whole number of bytes as size, got {text!r}")
    return int(text)


def whole(name: str, text: str | None) -> int | None:
    """A whole number, None without text. Raises ValueError."""
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number as {name}, found {text!r}") from None


def timing_of(cells: Mapping[str, str], unit_us: float = 1.0) -> NcclTiming | None:
    """The timing in `cells`: time, algbw, busbw, wrong; None if nothing was measured.

    Raises ValueError for what is no number, below 0, or a time of 0.
    """
    if cells["time"] in _NOTHING:
        return None
    time_us, time_error = _printed("time", cells["time"])
    if time_us <= 0:
        raise ValueError(f"expected a time above 0 us, found {cells['time']}")
    algbw, algbw_error = _printed("algbw", cells.get("algbw", ""))
    busbw, busbw_error = _printed("busbw", cells.get("busbw", ""))
    return NcclTiming(
        time_us * unit_us,
        algbw,
        busbw,
        _wrong(cells.get("wrong", "N/A")),
        Rounding(time_error * unit_us, algbw_error, busbw_error),
    )


def add_record(
    runs: list[NcclRecording], cells: Mapping[str, str], line: int | None, key: str
) -> None:
    """Add a record of rccl-tests' `-Z` (CSV or JSON), whose keys are lowercase, to the last of
    `runs`, or to a new one if it is of another collective or other ranks. Raises ValueError."""
    name = collective_of(cells.get("collective", cells.get("name", "")))
    ranks = _ranks_of(cells)
    if not runs or (runs[-1].name, runs[-1].ranks) != (name, ranks):
        runs.append(NcclRecording(line, name, ranks, line, ranks_are_exact=ranks is not None))
    timing = timing_of(cells)
    if timing is None:
        raise ValueError("the record has no time")
    size = size_of(cells["size"])
    # Its size is what a rank receives, of which algbw counts every rank's.
    if name in ("reducescatter", "scatter") and ranks is not None:
        speed = timing.algbw_gbs * timing.time_us * 1000
        size = min(size, size * ranks, key=lambda size: abs(size - speed))
    is_in_place = cells.get("inplace", "0") not in ("0", "false")
    row = NcclRow(
        line,
        size,
        None,
        cells.get("type"),
        cells.get("redop"),
        None,
        None if is_in_place else timing,
        timing if is_in_place else None,
        key,
    )
    merged(runs[-1].rows, row)


def _ranks_of(cells: Mapping[str, str]) -> int | None:
    """Ranks of a record: processes times the GPUs of each."""
    processes = whole("ranks", cells.get("ranks"))
    gpus = whole("gpus", cells.get("gpusperrank", cells.get("gpus")))
    return None if processes is None and gpus is None else (processes or 1) * (gpus or 1)


def collective_of(program: str) -> str:
    """The collective of a program, such as `alltoall` of /opt/build/alltoall_perf or AlltoAll."""
    name = program.replace("\\", "/").rsplit("/", 1)[-1].lower()
    return re.sub(r"[^a-z0-9]", "", re.sub(r"_perf.*", "", name))


def merged(rows: list[NcclRow], row: NcclRow) -> None:
    """Add a row that has one half; it completes the row before it if that has the other half."""
    last = rows[-1] if rows else None
    if (
        last is not None
        and last.in_place is None
        and row.out_of_place is None
        and (last.size_bytes, last.type, last.redop, last.root)
        == (row.size_bytes, row.type, row.redop, row.root)
    ):
        rows[-1] = replace(last, in_place=row.in_place)
    else:
        rows.append(row)


def _wrong(text: str) -> float | None:
    """The number of wrong elements, infinite for an error that is not a number. rccl-tests marks
    what exceeds its threshold by an asterisk."""
    if text in _NOTHING:
        return None
    try:
        value = float(text.rstrip("*"))
    except ValueError:
        raise ValueError(f"expected a number as #wrong, found {text!r}") from None
    if value < 0:
        raise ValueError(f"expected #wrong to be 0 or more, found {text!r}")
    return math.inf if math.isnan(value) or text.endswith("*") else value


def _printed(name: str, text: str) -> tuple[float, float]:
    """A number that is 0 or more, and half a unit of its last digit."""
    try:
        number = Decimal(text)
        value = float(number)
        exponent = number.as_tuple().exponent
        error = 0.5 * 10.0**exponent if isinstance(exponent, int) else math.nan
    except (InvalidOperation, OverflowError):
        raise ValueError(f"expected a number as {name}, found {text!r}") from None
    if not math.isfinite(value + error) or value < 0:
        raise ValueError(f"expected {name} to be 0 or more, found {text!r}")
    return value, error
