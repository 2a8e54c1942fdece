"""Parses the output of nccl-tests: measurements of a real cluster.

Reads the output of all_reduce_perf and the other programs, of any version, run alone or by mpirun,
as text or CSV, and rocelab's own tables. Rows have size, time and bandwidths. A line that cannot be
read is an error with its number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rocelab.errors import Problem, SpecError

_PREFIX = re.compile(r"^\s*(\[\d+,\d+\]<std(out|err)>:|\d+:)\s?")
"""The prefix that `mpirun --tag-output` and `srun --label` put before each line."""

_WRONG = ("#wrong", "wrong", "error", "res")


@dataclass(frozen=True, slots=True)
class Timing:
    """One half of a row. GB/s are 10^9 bytes. wrong: wrong elements, or in old versions the largest
    error; None if not checked."""

    time_us: float
    algbw_gbs: float
    busbw_gbs: float
    wrong: float | None


@dataclass(frozen=True, slots=True)
class NcclRow:
    """One size. redop, root, type: None if the version does not print them."""

    line: int
    size_bytes: int
    count: int | None
    type: str | None
    redop: str | None
    root: int | None
    out_of_place: Timing | None
    in_place: Timing | None

    @property
    def timing(self) -> Timing:
        """The out-of-place timing, or the in-place one if there is no other."""
        timing = self.out_of_place or self.in_place
        assert timing is not None
        return timing


@dataclass(frozen=True, slots=True)
class _Columns:
    """leading: names before the first time. halves: for each half, whether it is in place, and the
    names of its columns."""

    leading: tuple[str, ...]
    halves: tuple[tuple[bool, tuple[str, ...]], ...]


def read_nccl_tests(text: str, source: str = "nccl-tests") -> tuple[NcclRow, ...]:
    """The rows of nccl-tests' output `text`, in order; other lines are ignored.

    It reads every version's columns (with or without redop, root; `#wrong`, `error`), both halves
    or one, N/A, CSV, and lines prefixed by mpirun or srun. `source` names the text in errors.
    Raises SpecError with every line that cannot be read, or if there is no row.
    """
    columns: _Columns | None = None
    in_place = False
    rows: list[NcclRow] = []
    problems: list[Problem] = []
    for number, line in enumerate(text.splitlines(), start=1):
        bare = _PREFIX.sub("", line).strip()
        cells = _cells(bare)
        words = [cell.lower() for cell in cells]
        if "size" in words and "time" in words:
            columns = _columns(words, in_place)
        elif "place" in bare.lower().replace("-", " ") and not _is_row(cells):
            in_place = "out-of-place" not in bare.lower()
        elif _is_row(cells):
            try:
                if columns is None:
                    raise ValueError("a row before the line with the names of the columns")
                rows.append(_row(number, cells, columns))
            except ValueError as error:
                problems.append(Problem(source, number, "", str(error), _HINT))
    if not rows and not problems:
        problems.append(Problem(source, None, "", "no row of nccl-tests in it", _HINT))
    if problems:
        raise SpecError(problems)
    return tuple(rows)


_HINT = "give the output of nccl-tests as it was printed, from the line with `size` and `time` on"


def _cells(line: str) -> list[str]:
    bare = line.removeprefix("#") if not line.startswith("#wrong") else line
    if line.count(",") >= 5:
        return [cell.strip().strip('"') for cell in bare.split(",")]
    return bare.split()


def _is_row(cells: Sequence[str]) -> bool:
    """Whether cells begin with a size and have more: notes between rows do not."""
    return len(cells) >= 4 and cells[0].isdigit()


def _columns(words: Sequence[str], in_place: bool) -> _Columns:
    starts = [place for place, word in enumerate(words) if word == "time"]
    bounds = [*starts, len(words)]
    halves = [tuple(words[begin:end]) for begin, end in pairwise(bounds)]
    leading = tuple(words[: starts[0]])
    if len(halves) == 1:
        return _Columns(leading, ((in_place, halves[0]),))
    return _Columns(leading, tuple((bool(index), half) for index, half in enumerate(halves)))


def _row(number: int, cells: Sequence[str], columns: _Columns) -> NcclRow:
    width = len(columns.leading)
    trimmed = list(cells)
    while trimmed and not trimmed[-1]:
        trimmed.pop()
    full = width + sum(len(names) for _, names in columns.halves)
    halves = columns.halves
    if len(trimmed) == width + len(halves[0][1]):
        halves = halves[:1]
    elif len(trimmed) != full:
        raise ValueError(f"expected {full} columns, found {len(trimmed)}")
    lead = dict(zip(columns.leading, trimmed, strict=False))
    timings: dict[bool, Timing | None] = {False: None, True: None}
    at = width
    for in_place, names in halves:
        timings[in_place] = _timing(dict(zip(names, trimmed[at : at + len(names)], strict=True)))
        at += len(names)
    if timings[False] is None and timings[True] is None:
        raise ValueError("neither half of the row has a time")
    count, root = lead.get("count"), lead.get("root")
    return NcclRow(
        number,
        int(trimmed[0]),
        None if count is None else _whole("count", count),
        lead.get("type"),
        lead.get("redop"),
        None if root is None else _whole("root", root),
        timings[False],
        timings[True],
    )


def _timing(cells: dict[str, str]) -> Timing | None:
    """The timing of a half of a row, None if nothing was measured in it."""
    if cells["time"] in ("", "N/A"):
        return None
    time_us = _number("time", cells["time"])
    if time_us <= 0:
        raise ValueError(f"expected a time above 0 us, found {cells['time']}")
    wrong = next((cells[name] for name in _WRONG if name in cells), "N/A")
    return Timing(
        time_us,
        _number("algbw", cells.get("algbw", "")),
        _number("busbw", cells.get("busbw", "")),
        None if wrong in ("N/A", "") else _number("#wrong", wrong),
    )


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"expected a number as {name}, found {text!r}") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"expected {name} to be 0 or more, found {text!r}")
    return value


def _whole(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"expected a whole number as {name}, found {text!r}") from None
