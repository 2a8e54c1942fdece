"""Reads the tables that nccl-tests and rccl-tests print, of every version, as text or CSV.

A line is recognized by its content, whatever a launcher or a log collector puts before it: the
names of the columns by `size ... time algbw busbw`, a row by a size, a count and a type. The
formats are those of src/common.cu and src/util.cu of NVIDIA/nccl-tests and ROCm/rccl-tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from rocelab.base.errors import Problem
from rocelab.sim.traces.nccl_rows import (
    ELEMENT_BYTES,
    NcclRecording,
    NcclRow,
    NcclTiming,
    add_record,
    collective_of,
    merged,
    size_of,
    timing_of,
    whole,
)

HINT = "give the output of nccl-tests as it was printed, from the line with `size` and `time` on"

_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00\x0e\x0f]")
_TAG = re.compile(r"^.*<std(?:out|err|diag)>: ?")
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)")
_STARTED = re.compile(r"Collective test starting: *(\S+)")
_CONCLUDED = re.compile(r"Collective test concluded: *(\S+)")
_OPTIONS = re.compile(r"# *nThreads?:? +(\d{1,6}) +nGpus:? +(\d{1,6})\b")
_DEVICES = re.compile(r"# *Using devices")
_VERSION = re.compile(r"# *nccl-tests version")
_RANK = re.compile(r"# *Rank +(\d{1,7})(?: +Group +(\d{1,7}))?(?: +Pid +\S+)? +on ")
_FAILED = re.compile(r"Out of bounds values *: *(\d+) +FAILED")
_BROKEN = re.compile(r"\bTest (?:\w+ )?failure\b")
_HALF = re.compile(r"\b(?:out[- ]of[- ]place|in[- ]place)\b", re.I)
_TYPE = re.compile(r"[A-Za-z]\w*")
_GAP = re.compile(r"\S( {24,})\S")
"""What rccl-tests and nccl-tests print for a half that did not run."""

_NAMES = {
    **{"bytes": "size", "n": "count", "op": "redop", "cputime": "time"},
    **{"#wrong": "wrong", "error": "wrong", "res": "wrong", "delta": "wrong"},
    **{"algbw(gb/s)": "algbw", "busbw(gb/s)": "busbw", "time(us)": "time", "size(b)": "size"},
}


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a table."""

    leading: tuple[str, ...]
    """Names before the first time."""
    halves: tuple[tuple[bool, tuple[str, ...]], ...]
    """For each half, whether it is in place, and the names of its columns."""
    trailing: int
    separator: str | None
    unit_us: float
    """Of times; versions before 2.0.0 print milliseconds."""


def read_tables(text: str, source: str) -> tuple[list[NcclRecording], list[Problem]]:
    """Every run in `text` that has a row, in order, and what could not be read, by its line."""
    reader = _Reader(source)
    for number, line in enumerate(text.splitlines(), start=1):
        reader.take(number, _TAG.sub("", _ESCAPES.sub("", line).removeprefix("\ufeff")))
    return reader.finished(), reader.problems


class _Reader:
    """Lines to runs: a run ends where another one begins after its rows."""

    def __init__(self, source: str) -> None:
        self.problems: list[Problem] = []
        self._source = source
        self._done: list[NcclRecording] = []
        self._run = NcclRecording()
        self._columns: _Columns | None = None
        self._in_place = False

    def take(self, number: int, line: str) -> None:
        if self._is_about_the_run(number, line):
            return
        columns = _columns(line, self._in_place)
        if columns is not None:
            run = self._begun(number)
            if run.header_line is not None:
                run.headed_twice = number
            run.header_line = number
            run.is_cpu_time = re.search(r"\bcputime\b", line, re.I) is not None
            run.counts_wrong = re.search(r"\b(?:error|res|delta)\b", line, re.I) is None
            self._columns = columns
            return
        cells = _row_cells(line, self._columns)
        if cells is not None:
            self._row(number, line, cells)
        elif _HALF.search(line):
            self._in_place = re.search(r"out[- ]of[- ]place", line, re.I) is None

    def finished(self) -> list[NcclRecording]:
        return [run for run in (*self._done, self._run) if run.rows]

    def _begun(self, number: int) -> NcclRecording:
        """The run that a line belongs to which stands before rows."""
        if self._run.rows:
            self._done.append(self._run)
            self._run = NcclRecording()
        if self._run.line is None:
            self._run.line = number
        return self._run

    def _is_about_the_run(self, number: int, line: str) -> bool:
        if started := _STARTED.search(line):
            self._begun(number).name = collective_of(started[1])
        elif concluded := _CONCLUDED.search(line):
            self._run.name = self._run.name or collective_of(concluded[1])
        elif options := _OPTIONS.search(line):
            self._begun(number).per_process = int(options[1]) * int(options[2])
        elif _DEVICES.search(line) or _VERSION.search(line):
            self._begun(number)
        elif rank := _RANK.search(line):
            self._listed(number, int(rank[1]), int(rank[2] or 0), line)
        elif _FAILED.search(line):
            self._run.failed = number
        elif _BROKEN.search(line):
            self._run.broken = self._run.broken or number
        else:
            return False
        return True

    def _listed(self, number: int, rank: int, group: int, line: str) -> None:
        run = self._begun(number)
        if rank in run.devices:
            run.listed_twice = run.listed_twice or (rank, run.devices[rank], number)
        run.devices.setdefault(rank, number)
        run.groups.setdefault(group, number)
        # nccl-tests cuts the list of a process at 2,048 characters.
        run.is_list_cut |= line.rstrip().endswith("...")
        run.ranks_line = number
        run.ranks = max(run.devices) + 1
        is_whole = len(run.devices) == run.ranks and not run.is_list_cut
        run.ranks_are_exact = is_whole and run.ranks % (run.per_process or 1) == 0

    def _row(self, number: int, line: str, cells: list[str]) -> None:
        if self._run.line is None:
            self._run.line = number
        try:
            if self._columns is None or self._run.header_line is None:
                raise ValueError("a row before the line with the names of the columns")
            if "inplace" in self._columns.leading:
                self._record(number, cells, self._columns)
            else:
                merged(self._run.rows, _row(number, cells, self._columns, line))
        except ValueError as error:
            self.problems.append(Problem(self._source, number, "", str(error), HINT))

    def _record(self, number: int, cells: list[str], columns: _Columns) -> None:
        names = (*columns.leading, *columns.halves[0][1])
        if len(cells) != len(names):
            raise ValueError(f"expected {len(names)} columns, found {len(cells)}")
        runs = [self._run] if self._run.rows else []
        add_record(runs, dict(zip(names, cells, strict=True)), number, "")
        if len(runs) == 2:
            self._done.append(self._run)
        runs[-1].header_line = self._run.header_line
        self._run = runs[-1]


def _split(line: str, separator: str | None) -> list[str]:
    if separator is None:
        return _STAMP.sub(r"\1T\2", line).split()
    cells = [cell.strip(' "') for cell in line.split(separator)]
    while cells and not cells[-1]:
        cells.pop()
    return cells


def _columns(line: str, in_place: bool) -> _Columns | None:
    """The columns that a line names, None if it names none."""
    lowered = line.lower()
    separator = next((mark for mark in (",", ";") if lowered.count(mark) >= 5), None)
    # The names follow a comment sign; `#wrong` is one of them.
    bare = re.sub(r"#(?!wrong)", " ", lowered)
    words = [_NAMES.get(word, word) for word in _split(bare, separator)]
    first = words.index("size") if "size" in words else len(words)
    if separator is not None:
        first = 0
    elif words[first - 1 : first] == ["timestamp"]:
        first -= 1
    words = words[first:]
    trailing = int(words[-1:] == ["timestamp"])
    words = words[: len(words) - trailing]
    starts = [index for index, word in enumerate(words) if word == "time"]
    halves = [tuple(words[a:b]) for a, b in pairwise([*starts, len(words)])]
    leading = tuple(words[: starts[0]] if starts else words)
    if "size" not in leading or not all({"algbw", "busbw"} <= set(half) for half in halves):
        return None
    if not halves:
        return None
    places = [in_place] if len(halves) == 1 else [bool(index) for index in range(len(halves))]
    unit_us = 1000.0 if re.search(r"\bbytes\s+n\b", lowered) else 1.0
    pairs = tuple(zip(places, halves, strict=True))
    return _Columns(leading, pairs, trailing, separator, unit_us)


def _row_cells(line: str, columns: _Columns | None) -> list[str] | None:
    """The cells of a row from its first column on, None if the line is no row."""
    if columns is not None and columns.separator is not None:
        cells = _split(line, columns.separator)
        width = len(columns.leading) + len(columns.halves[0][1])
        where = columns.leading.index("size")
        # rccl-tests with MPI writes a column `nodes` that its header does not name.
        is_unnamed = "ranks" in columns.leading and "nodes" not in columns.leading
        if is_unnamed and len(cells) == width + 1:
            del cells[columns.leading.index("ranks")]
        is_row = len(cells) > where and cells[where].isascii() and cells[where].isdigit()
        return cells if is_row else None
    cells = _split(line, None)
    for first, (size, count, kind) in enumerate(zip(cells, cells[1:], cells[2:], strict=False)):
        if not (size.isdigit() and count.isdigit() and _TYPE.fullmatch(kind)):
            continue
        # A row that was cut off, by an error or by another process, has a type and no times.
        if len(cells) >= first + 6 or (columns is not None and kind in ELEMENT_BYTES):
            stamp = columns is not None and columns.leading[:1] == ("timestamp",)
            return cells[max(first - stamp, 0) :]
    return None


def _row(number: int, cells: list[str], columns: _Columns, line: str) -> NcclRow:
    leading, halves = columns.leading, columns.halves
    width = len(leading)
    full = width + sum(len(names) for _, names in halves)
    short = width + len(halves[0][1])
    if len(cells) in (full + columns.trailing, full):
        pass
    elif len(cells) in (short + columns.trailing, short):
        is_first_empty = len(halves) > 1 and _GAP.search(line) is not None
        halves = halves[1:] if is_first_empty else halves[:1]
    else:
        raise ValueError(f"expected {full + columns.trailing} columns, found {len(cells)}")
    lead = dict(zip(leading, cells, strict=False))
    timings: dict[bool, NcclTiming | None] = {False: None, True: None}
    at = width
    for in_place, names in halves:
        values = dict(zip(names, cells[at : at + len(names)], strict=True))
        timings[in_place] = timing_of(values, columns.unit_us)
        at += len(names)
    if timings[False] is None and timings[True] is None:
        raise ValueError("neither half of the row has a time")
    return NcclRow(
        number,
        size_of(lead["size"]),
        whole("count", lead.get("count")),
        lead.get("type"),
        lead.get("redop"),
        whole("root", lead.get("root")),
        timings[False],
        timings[True],
    )
