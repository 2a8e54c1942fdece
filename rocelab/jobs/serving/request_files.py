"""Reads traces of requests: CSV, or JSON with an object in each line, a list of them, or a list for
each column; compressed with gzip or not.

A file is read line by line, however large it is; what is kept of a request are a few numbers.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rocelab.base.arrays import Floats, Longs
from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import MOST_BYTES, NotTextError, open_input, text_of
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.base.wording import RefusedError, counted, described, printable
from rocelab.jobs.serving.request_columns import (
    PER_SECOND,
    Columns,
    Meaning,
    TimeUnit,
    columns_of,
    time_of,
    tokens_of,
    unit_of,
)
from rocelab.labfile.source import MAX_PROBLEMS, raise_problems

MOST_ROWS = 2**23
MOST_BLOCKS = 2**23
"""Different blocks of prompts."""
MOST_LINE = 2**22
REPORTED_LINES = 50_000
BLOCK_TOKENS = 512
"""Of a block whose number is given without its size: Mooncake's."""


@dataclass(frozen=True, eq=False)
class RequestTrace:
    """The requests of a file, in its order."""

    time_s: Floats | None
    """None where no column has times."""
    prompt: Longs
    answer: Longs
    reused: Longs
    """Tokens of the prompt's leading blocks that earlier requests had."""
    has_blocks: bool
    warnings: tuple[str, ...]


def read_trace(
    path: Path,
    *,
    columns: Mapping[Meaning, str] | None = None,
    unit: TimeUnit | None = None,
    first: int | None = None,
    progress: ProgressSink = no_progress,
) -> RequestTrace:
    """The requests of a trace, or the `first` of them. columns: the names of columns that are not
    called as usual. unit: of times that are numbers, where names do not say it. Raises SpecError
    with every problem, up to as many as are shown."""
    reader = _Reader(path, columns or {}, first)
    try:
        with open_input(path) as opened:
            reader.read(_text_lines(path, opened, progress))
    except OSError as error:
        reason = error.strerror or str(error)
        raise SpecError(
            [Problem(printable(str(path)), None, "", f"cannot be read: {reason}")]
        ) from None
    return reader.trace(unit)


def _text_lines(path: Path, raw: BinaryIO, progress: ProgressSink) -> Iterator[str]:
    """The lines of a file, decompressed; progress counts its bytes."""
    size = raw.seek(0, io.SEEK_END)
    raw.seek(0)
    packed = raw.read(2) == b"\x1f\x8b"
    raw.seek(0)
    opened: Any = gzip.GzipFile(fileobj=raw) if packed else raw
    number = 0
    try:
        while line := opened.readline(MOST_LINE + 1):
            number += 1
            if number % REPORTED_LINES == 0:
                progress(Progress("read", raw.tell(), size))
            if len(line) > MOST_LINE:
                raise _refused(
                    path, number, f"a line of more than {MOST_LINE:,} bytes", "is it a trace?"
                )
            try:
                yield text_of(line)
            except NotTextError as error:
                raise _refused(path, number, str(error), error.hint) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _refused(path, None, f"not a whole gzip file: {error}", "download it again") from None


def _refused(path: Path, line: int | None, message: str, hint: str | None = None) -> SpecError:
    return SpecError([Problem(printable(str(path)), line, "", message, hint)])


class _Reader:
    """Rows as they come, checked."""

    def __init__(self, path: Path, asked: Mapping[Meaning, str], first: int | None) -> None:
        self.path, self.asked, self.first = path, asked, first
        self.file = printable(str(path))
        self.columns: Columns | None = None
        self.problems: list[Problem] = []
        self.times, self.prompts = array("d"), array("q")
        self.answers, self.reused = array("q"), array("q")
        self.dates = 0
        self.blocks: set[object] = set()
        self.block_least, self.block_most = 1, MOST_BLOCKS

    def read(self, lines: Iterator[str]) -> None:
        """Everything. Raises SpecError."""
        number, begin = 1, next(lines, "")
        while begin and not begin.strip():
            number, begin = number + 1, next(lines, "")
        first = begin.lstrip()[:1]
        if not first:
            raise _refused(self.path, None, "no requests: the file is empty")
        if first == "[":
            self._whole(begin, lines)
        elif first == "{":
            self._objects(number, begin, lines)
        else:
            self._table(number, begin, lines)
        if self.problems:
            raise_problems(self.problems)
        if not self.prompts:
            raise _refused(self.path, None, "no requests: it has a header only")

    def _table(self, number: int, begin: str, lines: Iterator[str]) -> None:
        delimiter = max(",\t;", key=begin.count)
        names = [name.strip() for name in next(csv.reader([begin], delimiter=delimiter))]
        self._named(number, names)
        rows = csv.reader(lines, delimiter=delimiter)
        width = len(names)
        try:
            for row in rows:
                if not row or not any(map(str.strip, row)):
                    continue
                at = number + rows.line_num
                if len(row) != width:
                    self._problem(
                        at,
                        f"{counted(len(row), 'column')}, and the header has {width}",
                        "correct the line, or remove it",
                    )
                    continue
                if not self._add(at, row):
                    return
        except csv.Error as error:
            raise _refused(self.path, number + rows.line_num, f"not CSV: {error}") from None

    def _objects(self, number: int, begin: str, lines: Iterator[str]) -> None:
        try:
            row = json.loads(begin)
        except (ValueError, RecursionError):
            self._whole(begin, lines)
            return
        self._named(number, list(row))
        assert self.columns is not None
        values, names = list(row.values()), self.columns.names
        if isinstance(values[self.columns.at[Meaning.PROMPT]], list):
            self._lists(row)
            return
        if not self._add(number, values):
            return
        for line in lines:
            number += 1
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                self._problem(number, f"not JSON: {error}", "an object in each line")
                continue
            if not isinstance(row, dict):
                self._problem(number, f"expected an object, got {described(row)}")
                continue
            if not self._add(number, [row.get(name) for name in names]):
                return

    def _whole(self, begin: str, lines: Iterator[str]) -> None:
        """A file that is one JSON value."""
        parts, size = [begin], len(begin)
        for line in lines:
            parts.append(line)
            size += len(line)
            if size > MOST_BYTES:
                raise _refused(
                    self.path,
                    None,
                    f"one JSON value of more than {MOST_BYTES:,} characters",
                    "write an object in each line, which is read line by line",
                )
        try:
            value = json.loads("".join(parts))
        except (ValueError, RecursionError) as error:
            line_number = getattr(error, "lineno", None)
            raise _refused(self.path, line_number, f"not JSON: {error}") from None
        if isinstance(value, dict):
            self._lists(value)
            return
        if not value or not isinstance(value, list) or not isinstance(value[0], dict):
            raise _refused(
                self.path, None, "expected a list of objects, one for each request", None
            )
        self._named(1, list(value[0]))
        assert self.columns is not None
        names = self.columns.names
        for place, row in enumerate(value, start=1):
            if not isinstance(row, dict):
                self._problem(None, f"entry {place}: expected an object, got {described(row)}")
            elif not self._add(None, [row.get(name) for name in names], f"entry {place}: "):
                return

    def _lists(self, value: Mapping[str, object]) -> None:
        """A list for each column, as vLLM's benchmark writes its result."""
        lists = {name: one for name, one in value.items() if isinstance(one, list)}
        self._named(1, list(lists))
        assert self.columns is not None
        wanted = [list(lists.values())[at] for at in self.columns.at.values()]
        if len({len(one) for one in wanted}) != 1:
            names = [self.columns.names[at] for at in self.columns.at.values()]
            raise _refused(self.path, 1, f"the lists {', '.join(names)} differ in length")
        row: list[object] = [None] * len(lists)
        for place, values in enumerate(zip(*wanted, strict=True), start=1):
            for at, one in zip(self.columns.at.values(), values, strict=True):
                row[at] = one
            if not self._add(None, row, f"entry {place}: "):
                return

    def _named(self, line: int, names: Sequence[str]) -> None:
        try:
            self.columns = columns_of(names, self.asked)
        except RefusedError as error:
            raise _refused(self.path, line, error.message, error.hint) from None

    def _problem(self, line: int | None, message: str, hint: str | None = None) -> None:
        self.problems.append(Problem(self.file, line, "", message, hint))
        if len(self.problems) > MAX_PROBLEMS:
            raise_problems(self.problems)

    def _add(self, line: int | None, row: Sequence[object], where: str = "") -> bool:
        """Add a request; whether more are wanted."""
        assert self.columns is not None
        at, names = self.columns.at, self.columns.names
        try:
            prompt = tokens_of(row[at[Meaning.PROMPT]], names[at[Meaning.PROMPT]])
            answer = tokens_of(row[at[Meaning.OUTPUT]], names[at[Meaning.OUTPUT]])
            if Meaning.TIME in at:
                time, is_date = time_of(row[at[Meaning.TIME]], names[at[Meaning.TIME]])
                self.times.append(time)
                self.dates += is_date
            self.reused.append(self._reused(row, prompt))
        except RefusedError as error:
            del self.times[len(self.prompts) :]
            self._problem(line, where + error.message, error.hint)
            return True
        self.prompts.append(prompt)
        self.answers.append(answer)
        if len(self.prompts) > MOST_ROWS:
            raise _refused(
                self.path,
                line,
                f"more than {MOST_ROWS:,} requests",
                "take some of them: first: 1000000",
            )
        return self.first is None or len(self.prompts) < self.first

    def _reused(self, row: Sequence[object], prompt: int) -> int:
        """Leading blocks of the prompt that earlier requests had."""
        assert self.columns is not None
        at, names = self.columns.at, self.columns.names
        if Meaning.REUSED in at:
            return tokens_of(row[at[Meaning.REUSED]], names[at[Meaning.REUSED]])
        if Meaning.BLOCKS not in at:
            return 0
        name, value = names[at[Meaning.BLOCKS]], row[at[Meaning.BLOCKS]]
        hashes = _hashes(value, name)
        count = 0
        for one in hashes:
            if one not in self.blocks:
                break
            count += 1
        self.blocks.update(hashes)
        if len(self.blocks) > MOST_BLOCKS:
            raise RefusedError(
                f"more than {MOST_BLOCKS:,} different blocks", "take fewer requests: first: N"
            )
        if hashes and prompt:
            self.block_least = max(self.block_least, -(-prompt // len(hashes)))
            if len(hashes) > 1:
                self.block_most = min(self.block_most, (prompt - 1) // (len(hashes) - 1))
        return count

    def trace(self, unit: TimeUnit | None) -> RequestTrace:
        """What was read. Raises SpecError where columns contradict themselves."""
        assert self.columns is not None
        warnings: list[str] = []
        time_s = self._times(unit, warnings) if Meaning.TIME in self.columns.at else None
        has_blocks = not {Meaning.BLOCKS, Meaning.REUSED}.isdisjoint(self.columns.at)
        prompt = np.array(self.prompts, np.int64)
        reused = np.array(self.reused, np.int64) * self._block_tokens(warnings, has_blocks)
        return RequestTrace(
            time_s,
            prompt,
            np.array(self.answers, np.int64),
            np.minimum(reused, prompt),
            has_blocks,
            tuple(warnings),
        )

    def _times(self, asked: TimeUnit | None, warnings: list[str]) -> Floats:
        assert self.columns is not None
        times = np.array(self.times, np.float64)
        name = self.columns.names[self.columns.at[Meaning.TIME]]
        if self.dates not in (0, len(times)):
            raise _refused(
                self.path, None, f"{name}: some are numbers, others dates", "write all alike"
            )
        if self.dates:
            return times
        unit = asked or self.columns.unit or unit_of(float(times[0]))
        if unit is None:
            unit = TimeUnit.S
            warnings.append(
                f"{self.file}: {name} does not say its unit, and is taken for seconds; "
                "time_unit says another"
            )
        return times / PER_SECOND[unit]

    def _block_tokens(self, warnings: list[str], has_blocks: bool) -> int:
        """The size of a block: that with which all prompts have as many as they have."""
        if not has_blocks or not self.blocks:
            return BLOCK_TOKENS
        fitting = [
            size
            for power in range(20)
            if self.block_least <= (size := 1 << power) <= self.block_most
        ]
        if BLOCK_TOKENS in fitting:
            return BLOCK_TOKENS
        if fitting:
            return fitting[0]
        warnings.append(
            f"{self.file}: no size of blocks fits all prompts and their numbers of blocks; "
            f"{BLOCK_TOKENS} tokens are taken"
        )
        return BLOCK_TOKENS


def _hashes(value: object, name: str) -> list[object]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except (ValueError, RecursionError):
            value = None
    if value is None or not isinstance(value, list):
        raise RefusedError(f"{name}: expected a list of blocks", "such as [0, 1, 2]")
    if not all(isinstance(one, int | str) for one in value):
        raise RefusedError(f"{name}: a block is a number or a text", "such as [0, 1, 2]")
    return value
