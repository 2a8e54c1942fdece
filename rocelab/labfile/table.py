"""Reads a CSV to the rows that a YAML file would hold, each with its line.

The first line names the columns, in any order; an empty cell is a missing value. Cells are read as
YAML's plain scalars, unless their column is text. Commas, semicolons or tabs part them: the first
line shows which. Lines that begin with # are comments.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from io import StringIO
from pathlib import Path

from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import NotTextError, read_input, text_of
from rocelab.base.wording import KeyPath, RefusedError
from rocelab.labfile.scalars import read_scalar
from rocelab.labfile.source import Data, YamlSource, raise_problems


@dataclass(frozen=True, slots=True)
class TableFormat:
    """What a CSV holds: rows of `noun`, which become the list at `key`."""

    key: str
    noun: str
    columns: Mapping[str, bool]
    """Every column, and whether it is required."""
    most_rows: int
    is_open: bool = False
    """Whether further columns are passed over."""
    texts: Collection[str] = ()
    """The columns whose cells are text, whatever YAML would make of it: a name may be 007 or on."""
    column_of: Callable[[str], str] = str.strip
    """The column that a name in the first line means."""


def read_table(path: Path, form: TableFormat) -> YamlSource:
    """The rows with the same keys and values as in YAML, each with its line. Raises SpecError with
    every problem."""
    file = str(path)
    try:
        text = _text(path)
        reader = csv.DictReader(StringIO(text, newline=""), strict=True, delimiter=_delimiter(text))
        header = [form.column_of(name) for name in next(filter(None, reader.reader), ())]
        check_header(file, header, form, max(1, reader.line_num))
        reader.fieldnames = header
        return _rows(file, reader, form)
    except OSError as error:
        raise SpecError([Problem(file, None, "", f"cannot be read: {error.strerror}")]) from None
    except NotTextError as error:
        raise SpecError([Problem(file, error.line, "", str(error), error.hint)]) from None
    except csv.Error as error:
        raise SpecError([Problem(file, reader.line_num, "", f"not CSV: {error}")]) from None


def further_columns(path: Path, form: TableFormat) -> tuple[str, ...]:
    """The columns of a CSV that its form does not have. The file has been read before."""
    text = _text(path)
    rows = csv.reader(StringIO(text, newline=""), strict=True, delimiter=_delimiter(text))
    header = next(filter(None, rows), [])
    return tuple(name.strip() for name in header if form.column_of(name) not in form.columns)


def _text(path: Path) -> str:
    """The text of a CSV, with empty lines for comments."""
    return re.sub(r"(?m)^[ \t]*#.*$", "", text_of(read_input(path)))


def _delimiter(text: str) -> str:
    """What parts the cells of a CSV, by its first line."""
    first = text.lstrip("\r\n").partition("\n")[0]
    return next((mark for mark in (";", "\t") if mark in first and "," not in first), ",")


def check_header(file: str, header: Sequence[str], form: TableFormat, line: int = 1) -> None:
    """Raises SpecError for columns that are unknown, missing or named twice. line: the header's."""
    hint = f"the first line names columns: {', '.join(form.columns)}"
    problems = [
        Problem(file, line, "", f"unknown column {name!r}", hint)
        for name in header
        if name not in form.columns and not form.is_open
    ]
    problems += [
        Problem(file, line, name, "missing column", hint)
        for name, is_required in form.columns.items()
        if is_required and name not in header
    ]
    if len(set(header)) < len(header):
        problems.append(Problem(file, line, "", "a column is named twice", hint))
    if problems:
        raise SpecError(problems)


@lru_cache(2**16)
def read_cell(text: str) -> Data:
    """The value of a cell. Raises RefusedError."""
    return read_scalar(text.strip(), None, plain=True)


def _rows(file: str, reader: csv.DictReader[str], form: TableFormat) -> YamlSource:
    rows: list[Data] = []
    lines: dict[KeyPath, int] = {(form.key,): 1}
    problems = []
    for number, cells in enumerate(reader, 1):
        index, line = len(rows), reader.line_num
        if number > form.most_rows:
            problem = f"more than {form.most_rows:,} {form.noun}; at most that many are read"
            raise SpecError([Problem(file, line, "", problem, "split the file")])
        if None in cells or None in cells.values():
            columns = len(reader.fieldnames or ())
            problems.append(Problem(file, line, "", f"expected {columns} columns"))
            continue
        lines[form.key, index] = line
        try:
            rows.append(
                {
                    name: text.strip() if name in form.texts else read_cell(text)
                    for name, text in cells.items()
                    if name in form.columns and text.strip()
                }
            )
        except RefusedError as error:
            problems.append(Problem(file, line, "", error.message, error.hint))
    if problems:
        raise_problems(problems)
    return YamlSource(file, {form.key: rows}, lines)
