"""Stores a sweep in its folder: a journal of cells as they end, and one Parquet file.

    cells.jsonl     a line for each cell that was run, on disk before the next one is noted; locked
                    while a sweep works in the folder
    sweep.parquet   all rows in the order of the grid, with typed columns
    report.html     see `rocelab.sim.sweep.report`

The journal keeps the records of earlier runs, also of a run killed at any moment.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from rocelab.base import quantities
from rocelab.base.documents import misfit
from rocelab.base.errors import InputError
from rocelab.base.extras import missing
from rocelab.base.outputs import Folder, check_new, open_folder

if TYPE_CHECKING:
    import pyarrow as pa

JOURNAL, TABLE, REPORT = "cells.jsonl", "sweep.parquet", "report.html"
METADATA_KEY = b"rocelab.sweep"

MAX_JOURNAL_BYTES = 2**29
"""A million cells of usual size: fifty of the largest sweeps in one folder."""

MAX_LINE_BYTES = 2**24
"""A cell whose values list the NICs of 131,072 ranks takes a few megabytes."""

Row = dict[str, Any]
"""One cell of a table: plain values by column."""


Figure = Annotated[int, Field(ge=-(2**63), lt=2**63)] | float | None
"""What a column of the table holds."""


@dataclass(frozen=True, slots=True)
class CellRecord:
    """The result of a cell, by its digest: figures, or the error that ended it."""

    digest: str
    values: Mapping[str, Any]
    """Those of the sweep that ran it."""
    figures: Mapping[str, Figure]
    error: str | None
    wall_s: float
    peak_memory_bytes: int | None
    """Of the process while it ran, None if unknown."""
    warnings: str | None = None
    """Of the simulation, as `run_cell` has them."""


_RECORD = TypeAdapter(CellRecord)


class SweepJournal:
    """The records of a folder. Only one process has it open: see `open_journal`."""

    def __init__(self, folder: Folder, file: IO[bytes], records: dict[str, CellRecord]) -> None:
        self.folder = folder
        self._file = file
        self.records = records

    def add(self, records: Iterable[CellRecord]) -> None:
        """Add results of cells; they are on disk on return. Raises OSError."""
        for record in records:
            self.records[record.digest] = record
            self._file.write(json.dumps(asdict(record)).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def open_journal(folder: Path) -> Iterator[SweepJournal]:
    """Open and lock the journal in `folder`, which is created if missing.

    An incomplete last line is dropped. Raises InputError if another sweep works in the folder, the
    journal cannot be read, or the folder has the result of another command.
    """
    path = folder / JOURNAL
    try:
        opened = open_folder(folder, make=True)
    except OSError as error:
        raise _unwritable(error, path) from None
    with opened, _opened_file(opened) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another sweep is working in {folder}",
                "wait for it to end, or give another folder with --out",
            ) from None
        opened.sync()
        yield SweepJournal(opened, file, _read(file, path))


def _opened_file(folder: Folder) -> IO[bytes]:
    """Raises InputError if it cannot be written, or what is written at the end could not be."""
    try:
        check_new(folder, hint="give another folder with --out", overwrite=folder.has(JOURNAL))
        folder.check(TABLE)
        return folder.append(JOURNAL)
    except OSError as error:
        folder.remove_made()
        raise _unwritable(error, folder.path / JOURNAL) from None


def _unwritable(error: OSError, path: Path) -> InputError:
    place = error.filename if Path(str(error.filename)).parent == path.parent else path
    return InputError(
        f"{place} cannot be written: {error.strerror}", "give another folder with --out"
    )


def _read(file: IO[bytes], path: Path) -> dict[str, CellRecord]:
    size = os.fstat(file.fileno()).st_size
    if size > MAX_JOURNAL_BYTES:
        raise InputError(
            f"{path}: the journal has {quantities.size(size)}, and at most "
            f"{quantities.size(MAX_JOURNAL_BYTES)} are read",
            "give another folder with --out",
        )
    file.seek(0)
    records = {}
    good = 0
    for number, line in enumerate(iter(partial(file.readline, MAX_LINE_BYTES), b""), 1):
        try:
            record = _RECORD.validate_json(line)
        except ValidationError as error:
            if file.read(1):
                raise InputError(
                    f"{path}:{number}: not a line of a sweep's journal: {misfit(error)}",
                    "remove the line, or give another folder with --out",
                ) from None
            break
        if not line.endswith(b"\n"):
            break
        records[record.digest] = record
        good += len(line)
    if good < os.fstat(file.fileno()).st_size:
        file.truncate(good)
    return records


def write_table(folder: Folder, rows: Sequence[Row], metadata: Mapping[str, Any]) -> None:
    """Write the rows as Parquet, atomically.

    A column is of booleans, whole numbers, numbers or text, whichever holds all its values. Raises
    OSError.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: _column([row.get(name) for row in rows]) for name in names}
    header = {METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()}
    table = pa.table(columns).replace_schema_metadata(header)
    with folder.replacing(TABLE) as file:
        pq.write_table(table, file)
        file.flush()
        os.fsync(file.fileno())
    folder.sync()


def table_metadata(folder: Folder) -> dict[str, Any] | None:
    """The metadata of the existing table (see `write_table`), None if there is none or it is
    damaged: it is written anew then."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with folder.read(TABLE) as file:
            metadata = pq.read_schema(file).metadata or {}
        return dict(json.loads(metadata[METADATA_KEY]))
    except (OSError, KeyError, TypeError, ValueError, RecursionError, pa.ArrowException):
        return None


def need_pyarrow() -> None:
    """Raises MachineError if Parquet cannot be written, before any cell runs."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing(error) or error from None


def _column(values: Sequence[Any]) -> pa.Array:
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    if not kinds or not kinds <= {bool, int, float} or (bool in kinds and len(kinds) > 1):
        return pa.array([as_words(value) for value in values], pa.string())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return pa.array(values, pa.int64())
    return pa.array([None if value is None else float(value) for value in values], pa.float64())


def as_words(value: object) -> str | None:
    """A value as text: a string unchanged, anything else as JSON."""
    return value if value is None or isinstance(value, str) else json.dumps(value)
