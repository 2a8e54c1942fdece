"""Running the cells of a sweep: side by side, resumable, through `concurrent.futures`.

In: cells, what runs one, and whom to hire for it (`rocelab.sim.sweep.workerpool`). Out: a row for
each cell. Every cell that ends is in the journal before another is handed out, so a sweep that was
killed goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import signal
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import FrameType

from rocelab.errors import RocelabError
from rocelab.interruption import undone
from rocelab.progress import Progress, ProgressSink, no_progress
from rocelab.sim.sweep.cells import Cell, Figures, Inputs, cells_of, run_cell
from rocelab.sim.sweep.spec import Sweep
from rocelab.sim.sweep.store import (
    REPORT,
    Journal,
    Record,
    Row,
    need_pyarrow,
    open_journal,
    table_metadata,
    write_table,
)
from rocelab.sim.sweep.workerpool import Hire, WorkerPool, cluster_lost

CellFunction = Callable[[Inputs], Figures]
"""Simulates a cell. Whoever is hired must be able to unpickle it: a function of a module."""

Attempt = tuple[Figures, str | None, float, int | None]
"""Figures, error, seconds and peak memory of a cell, as they come back from a worker."""

BASE_BYTES, FLOW_BYTES = 3 * 10**8, 400
"""About what a process takes to simulate: alone, and for each flow. For a hint, not a limit."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The rows of a sweep in the order of its grid; `row["error"]` is None where a cell went well.

    ran: cells run now; reused: cells taken from the journal; left: cells not run, because the run
    was interrupted.
    """

    rows: tuple[Row, ...]
    ran: int
    reused: int
    left: int

    @property
    def failed(self) -> tuple[Row, ...]:
        """The rows of cells that ended with an error."""
        return tuple(row for row in self.rows if row["error"] is not None)


def run_sweep(
    sweep: Sweep,
    folder: Path,
    hire: Hire,
    *,
    function: CellFunction = run_cell,
    progress: ProgressSink = no_progress,
    say: Callable[[str], None] = lambda _: None,
) -> SweepResult:
    """Run every cell of a sweep that `folder` does not hold yet, and write the table and the page.

    Cells that failed before are tried again. `say` is told what a person should know while it runs.
    An interrupt (SIGINT) lets running cells end and hands out no more; a second one drops them.
    Raises SpecError with every problem of every cell before any is run, InputError where another
    sweep works in the folder, MachineError without pyarrow or where a cluster is lost.
    """
    need_pyarrow()
    cells = cells_of(sweep)
    with open_journal(folder) as journal:
        done = {digest for digest, record in journal.records.items() if record.error is None}
        todo = {cell.digest: cell for cell in cells if cell.digest not in done}
        if todo:
            say(_outlook(cells, list(todo.values()), journal))
        try:
            ran = _run_cells(list(todo.values()), function, hire, journal, progress, say)
        except KeyboardInterrupt:
            undone(
                f"cells under way were dropped; {folder} has {len(journal.records):,} that ended, "
                "and the same command goes on from them"
            )
            raise
        rows = tuple(
            _row(cell, journal.records[cell.digest])
            for cell in cells
            if cell.digest in journal.records
        )
        left = len(todo) - ran
        if not left:
            _write(folder, sweep, cells, rows)
    return SweepResult(rows, ran, len({cell.digest for cell in cells}) - len(todo), left)


def _write(folder: Path, sweep: Sweep, cells: Sequence[Cell], rows: Sequence[Row]) -> None:
    """The table and the page, unless those that are there are of these cells."""
    from rocelab.sim.sweep.report import write_report

    text = json.dumps([cell.digest for cell in cells])
    metadata = {
        "sweep": sweep.source.data,
        **{name: part.source.data for name, part in sweep.parts.items()},
        "cells": hashlib.blake2s(text.encode(), digest_size=16).hexdigest(),
        "failed": sum(row["error"] is not None for row in rows),
        "versions": {name: version(name) for name in ("rocelab", "numpy", "pyarrow")},
    }
    if table_metadata(folder) == metadata and (folder / REPORT).exists():
        return
    write_report(folder / REPORT, sweep, rows)
    write_table(folder, rows, metadata)


def _row(cell: Cell, record: Record) -> Row:
    return {
        **cell.values,
        **record.figures,
        "wall_s": record.wall_s,
        "peak_memory_bytes": record.peak_memory_bytes,
        "error": record.error,
    }


def _outlook(cells: Sequence[Cell], todo: Sequence[Cell], journal: Journal) -> str:
    """What a sweep comes to: its cells, the largest of them, and what those so far took."""
    known = [journal.records[cell.digest] for cell in cells if cell.digest in journal.records]
    took = [record.wall_s for record in known if record.error is None]
    flows = max(cell.flows for cell in todo)
    said = (
        f"{len(todo):,} of {len(cells):,} cells to run; the largest has "
        f"{max(cell.nics for cell in todo):,} NICs and about {flows:,} flows, some "
        f"{(BASE_BYTES + flows * FLOW_BYTES) / 1e9:.1f} GB of memory"
    )
    if took:
        said += f"; one took {statistics.median(took):.1f} s so far (median)"
    return said


def attempt(function: CellFunction, inputs: Inputs) -> Attempt:
    """Run a cell and say what came of it and what it took; for a worker."""
    begin = time.perf_counter()
    watches_memory = _reset_peak_memory()
    figures: Figures = {}
    error = None
    try:
        figures = function(inputs)
    except RocelabError as refused:
        error = refused.message
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    peak = _peak_memory_bytes() if watches_memory else None
    return figures, error, time.perf_counter() - begin, peak


def _reset_peak_memory() -> bool:
    """Start the process's peak anew; False where this kernel does not (Linux does since 4.0, see
    proc(5), clear_refs)."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak_memory_bytes() -> int | None:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return None


_Handler = Callable[[int, FrameType | None], object]


class _Interrupts:
    """Takes the first SIGINT as a wish to stop; the second one ends the run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = False
        self._say = say

    def _note(self, end: _Handler, number: int, frame: FrameType | None) -> None:
        if self.asked:
            end(number, frame)
        self.asked = True
        self._say("stopping once the running cells are over; interrupt again to drop them")

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Signals reach the main thread only: elsewhere whoever runs it takes them. Where they are
        ignored they stay so."""
        before = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(before):
            yield
            return
        signal.signal(signal.SIGINT, partial(self._note, before))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _run_cells(
    cells: Sequence[Cell],
    function: CellFunction,
    hire: Hire,
    journal: Journal,
    progress: ProgressSink,
    say: Callable[[str], None],
) -> int:
    """Run cells and note what came of each; how many were run.

    Where a worker dies, all that were under way with it are tried again, one at a time at the end:
    the one that dies alone is the one to blame.
    """
    queue = deque(cells)
    suspects: list[Cell] = []
    runner = _Runner(function, journal, progress, len(cells), _Interrupts(say))
    with runner.interrupts.noted():
        while queue and not runner.interrupts.asked:
            with hire() as pool:
                suspects += runner.run(pool, queue, pool.slots)
        for suspect in suspects:
            if runner.interrupts.asked:
                break
            with hire() as pool:
                if runner.run(pool, deque([suspect]), lambda: 1):
                    runner.note(suspect, _DIED)
    return runner.done


_DIED: Attempt = ({}, "its process died; it may have run out of memory", 0.0, None)


@dataclass(slots=True)
class _Runner:
    function: CellFunction
    journal: Journal
    progress: ProgressSink
    total: int
    interrupts: _Interrupts
    done: int = 0

    def run(self, pool: WorkerPool, queue: deque[Cell], slots: Callable[[], int]) -> list[Cell]:
        """Run cells until none is left, one wishes to stop or a process dies; those that were under
        way when it did."""
        self.progress(Progress("cells", self.done, self.total))
        under_way: dict[Future[Attempt], Cell] = {}
        lost: list[Cell] = []
        while True:
            while queue and not lost and not self.interrupts.asked and len(under_way) < slots():
                try:
                    future = pool.executor.submit(attempt, self.function, queue[0].inputs)
                except BrokenExecutor:
                    break
                under_way[future] = queue.popleft()
            if not under_way:
                return lost
            for future in wait(under_way, return_when=FIRST_COMPLETED).done:
                cell = under_way.pop(future)
                try:
                    self.note(cell, future.result())
                except BrokenExecutor:
                    lost.append(cell)
                except CancelledError:
                    raise cluster_lost() from None
                except Exception as error:  # of a cluster's worker, such as one that died thrice
                    self.note(cell, ({}, f"{type(error).__name__}: {error}", 0.0, None))

    def note(self, cell: Cell, came: Attempt) -> None:
        """Note what came of a cell."""
        self.journal.add([Record(cell.digest, cell.values, *came)])
        self.done += 1
        self.progress(Progress("cells", self.done, self.total))
