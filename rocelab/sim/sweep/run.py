"""Runs the cells of a sweep in parallel through `concurrent.futures`; a sweep can be resumed.

Workers come from `rocelab.sim.sweep.workerpool`. Every finished cell is in the journal before the
next is submitted, so a killed sweep continues where it stopped.
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

from rocelab.base.errors import RocelabError
from rocelab.base.interruption import undone
from rocelab.base.outputs import Folder
from rocelab.base.plugin_errors import plugin_error
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.report.renderers.page import html
from rocelab.sim.ahead import compile_ahead, compile_missing
from rocelab.sim.sweep.cells import (
    WARNINGS,
    Figures,
    Inputs,
    SweepCell,
    cells_of,
    engine_of,
    run_cell,
)
from rocelab.sim.sweep.report import sweep_document
from rocelab.sim.sweep.store import (
    REPORT,
    CellRecord,
    Row,
    SweepJournal,
    need_pyarrow,
    open_journal,
    table_metadata,
    write_table,
)
from rocelab.sim.sweep.sweep_spec import Sweep
from rocelab.sim.sweep.workerpool import Hire, WorkerPool, cluster_lost

CellFunction = Callable[[Inputs], Figures]
"""Simulates a cell. Workers must be able to unpickle it: a module-level function."""

Attempt = tuple[Figures, str | None, float, int | None]
"""Figures, error, seconds and peak memory of a cell, as a worker returns them."""

BASE_BYTES, FLOW_BYTES = 3 * 10**8, 400
"""About the memory of a simulating process: base, and per flow. For a hint, not a limit."""


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The rows of a sweep in the order of its grid; `row["error"]` is None if a cell succeeded."""

    rows: tuple[Row, ...]
    ran: int
    """Cells run now."""
    reused: int
    """Cells taken from the journal."""
    left: int
    """Cells not run because of an interrupt."""

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

    Cells that failed before are tried again. The engines of all these cells are compiled first, in
    this process's cache. `say` receives progress messages. An interrupt (SIGINT) lets running cells
    end and submits no more; a second one drops them. Raises SpecError with every problem of every
    cell before any is run, InputError if another sweep works in the folder, MachineError without
    pyarrow or if a cluster is lost.
    """
    need_pyarrow()
    cells = cells_of(sweep)
    with open_journal(folder) as journal:
        done = {digest for digest, record in journal.records.items() if record.error is None}
        todo = {cell.digest: cell for cell in cells if cell.digest not in done}
        if todo:
            say(_outlook(cells, list(todo.values()), journal))
        for engine in dict.fromkeys(engine_of(cell.inputs) for cell in todo.values()):
            compile_missing(engine, progress)
        try:
            ran = _run_cells(list(todo.values()), function, hire, journal, progress, say)
        except KeyboardInterrupt:
            undone(
                f"running cells were dropped; {folder} has {len(journal.records):,} complete "
                f"ones, and the same command continues from them"
            )
            raise
        rows = tuple(
            _row(cell, journal.records[cell.digest])
            for cell in cells
            if cell.digest in journal.records
        )
        left = len(todo) - ran
        if not left:
            _write(journal.folder, sweep, cells, rows)
    return SweepResult(rows, ran, len({cell.digest for cell in cells}) - len(todo), left)


def _write(folder: Folder, sweep: Sweep, cells: Sequence[SweepCell], rows: Sequence[Row]) -> None:
    """Write the table and the page, unless the existing ones are of these cells."""
    text = json.dumps([cell.digest for cell in cells])
    metadata = {
        "sweep": sweep.source.data,
        **{name: part.source.data for name, part in sweep.parts.items()},
        "cells": hashlib.blake2s(text.encode(), digest_size=16).hexdigest(),
        "failed": sum(row["error"] is not None for row in rows),
        "versions": {name: version(name) for name in ("rocelab", "numpy", "pyarrow")},
    }
    if table_metadata(folder) == metadata and folder.has(REPORT):
        return
    folder.replace(REPORT, html(sweep_document(sweep, rows)))
    write_table(folder, rows, metadata)


def _row(cell: SweepCell, record: CellRecord) -> Row:
    return {
        **cell.values,
        **record.figures,
        "wall_s": record.wall_s,
        "peak_memory_bytes": record.peak_memory_bytes,
        "error": record.error,
        WARNINGS: record.warnings,
    }


def _outlook(cells: Sequence[SweepCell], todo: Sequence[SweepCell], journal: SweepJournal) -> str:
    """The outlook of a sweep: its cells, the largest of them, and the cost of finished ones."""
    known = [journal.records[cell.digest] for cell in cells if cell.digest in journal.records]
    took = [record.wall_s for record in known if record.error is None]
    flows = max(cell.flows for cell in todo)
    # Those that begin at given times are known when they are drawn or read.
    of_flows = f" and about {flows:,} flows" if flows else ""
    said = (
        f"{len(todo):,} of {len(cells):,} cells to run; the largest has "
        f"{max(cell.nics for cell in todo):,} NICs{of_flows}, some "
        f"{(BASE_BYTES + flows * FLOW_BYTES) / 2**30:.1f} GiB of memory"
    )
    if took:
        said += f"; one took {statistics.median(took):.1f} s so far (median)"
    return said


def attempt(function: CellFunction, inputs: Inputs) -> Attempt:
    """Run a cell in a worker; returns its result and cost, without the time to load its engine."""
    begin = time.perf_counter()
    watches_memory = _reset_peak_memory()
    figures: Figures = {}
    error = None
    try:
        compile_ahead(engine_of(inputs))
        begin = time.perf_counter()
        figures = function(inputs)
    except RocelabError as refused:
        error = refused.message
    except Exception as raised:
        named = plugin_error(raised)
        error = named.message if named else f"{type(raised).__name__}: {raised}"
    peak = _peak_memory_bytes() if watches_memory else None
    return figures, error, time.perf_counter() - begin, peak


def _reset_peak_memory() -> bool:
    """Reset the process's memory peak; False if this kernel does not (Linux does since 4.0, see
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
    """The first SIGINT asks to stop; the second one ends the run."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = False
        self._say = say

    def _note(self, end: _Handler, number: int, frame: FrameType | None) -> None:
        if self.asked:
            end(number, frame)
        self.asked = True
        self._say("stopping when the running cells end; interrupt again to drop them")

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Signals reach only the main thread: in another thread the caller handles them. An ignored
        SIGINT stays ignored."""
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
    cells: Sequence[SweepCell],
    function: CellFunction,
    hire: Hire,
    journal: SweepJournal,
    progress: ProgressSink,
    say: Callable[[str], None],
) -> int:
    """Run cells and record each result. Returns how many were run.

    If a worker dies, all cells under way with it are tried again at the end, one at a time: the
    cell whose worker dies again is the cause.
    """
    queue = deque(cells)
    suspects: list[SweepCell] = []
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
    journal: SweepJournal
    progress: ProgressSink
    total: int
    interrupts: _Interrupts
    done: int = 0

    def run(
        self, pool: WorkerPool, queue: deque[SweepCell], slots: Callable[[], int]
    ) -> list[SweepCell]:
        """Run cells until none is left, an interrupt comes or a process dies. Returns the cells
        under way when it died."""
        self.progress(Progress("cells", self.done, self.total))
        under_way: dict[Future[Attempt], SweepCell] = {}
        lost: list[SweepCell] = []
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

    def note(self, cell: SweepCell, came: Attempt) -> None:
        """Record the result of a cell."""
        warnings = came[0].pop(WARNINGS, None)
        self.journal.add([CellRecord(cell.digest, cell.values, *came, warnings)])
        self.done += 1
        self.progress(Progress("cells", self.done, self.total))
