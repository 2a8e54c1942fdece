"""`make convergence-table`: how long FRR on Linux takes to converge, by fault, fabric and fan-out.

Measures each cell of the plan on a lab of its own and keeps it below `--results`; a run that ended
early is continued by the same command. Once every cell is there the page goes to docs/; until then
it is beside the cells.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from bench.convergence.document import SCHEMA_VERSION, CellResult, ConvergenceTable, summarise
from bench.convergence.job import measure_job
from bench.convergence.plan import LAB_NAME, QUICK, Breakage, Cell, all_cells, chosen_cells
from bench.convergence.plot import plot
from bench.convergence.render import DOCUMENT, PLOT, page
from bench.convergence.run import TRACED, measure_cell
from bench.convergence.store import Store
from labs.errors import InputError, RocelabError
from labs.runtime.record import recorded_labs
from labs.units import format_duration
from scripts.documents import to_json

FAILURES = 20
QUICK_FAILURES = 3
COMMAND = "make convergence-table"
DOCS = Path(__file__).parents[2] / "docs"
RESULTS = Path("results/convergence-table")
QUICK_RESULTS = Path("results/convergence-table-quick")

CELL_S, FAILURE_S = 8.0, 2.4
"""What a lab's start and end, and a failure with its repair, take on two CPUs beyond the timer that
finds it; a first guess, scaled by what the cells of this run took."""

RETURN_S = {Breakage.CRASH: 1.0, Breakage.POWER: 1.5}
"""How much longer a daemon or a switch needs to come back."""


def main(
    cells: Annotated[str, typer.Option(help="only cells whose name fits this glob")] = "*",
    n: Annotated[int | None, typer.Option(min=1, help="failures a cell; 20, or 3 if quick")] = None,
    quick: Annotated[bool, typer.Option(help="few cells, to try it")] = False,
    again: Annotated[bool, typer.Option(help="also cells that are measured already")] = False,
    plan: Annotated[bool, typer.Option(help="only list the cells and the time they take")] = False,
    results: Annotated[
        Path | None, typer.Option(help="folder of measured cells [results/convergence-table]")
    ] = None,
) -> None:
    """Measure the cells that are missing, and write the table of all that are there."""
    console = Console(stderr=True, soft_wrap=True)
    wanted = n or (QUICK_FAILURES if quick else FAILURES)
    store = Store(results or (QUICK_RESULTS if quick else RESULTS))
    try:
        chosen = chosen_cells(cells, QUICK if quick else ())
        todo = chosen if again else store.unfinished(chosen, wanted)
        if plan:
            _list(console, chosen, todo, wanted)
            return
        if todo and os.geteuid() != 0:
            raise InputError("labs need root", hint=f"sudo {COMMAND}, or run this as root")
        if todo and LAB_NAME in recorded_labs():
            raise InputError(
                f"lab {LAB_NAME} is up: another run, or one that was killed",
                hint=f"in the second case take it down with `rocelab down {LAB_NAME}`",
            )
        failed = _measure(console, store, todo, wanted)
        if cells == "*" and (again or _lacks_job(store, wanted)):
            with console.status(f"link-failure test, {wanted} jobs"):
                store.write_job(measure_job(wanted))
        _write(console, store, wanted, quick=quick)
    except RocelabError as error:
        console.print(str(error), style="red", markup=False)
        sys.exit(error.exit_code)
    if failed:
        sys.exit(1)


def _lacks_job(store: Store, wanted: int) -> bool:
    job = store.read_job()
    return job is None or len(job.impacts) + job.rejected < wanted


def _list(console: Console, chosen: Sequence[Cell], todo: Sequence[Cell], wanted: int) -> None:
    for cell in chosen:
        state = "" if cell in todo else "  (measured)"
        print(f"{cell.name:28} {estimate_s(cell, wanted):5.0f} s{state}")
    console.print(f"{len(todo)} cells to measure, {_left(todo, wanted, 1.0)}")


def _measure(console: Console, store: Store, todo: Sequence[Cell], wanted: int) -> int:
    """Measure these cells; gives how many failed."""
    if todo:
        console.print(f"{len(todo)} cells, {_left(todo, wanted, 1.0)}")
    failed, took_s, estimated_s = 0, 0.0, 0.0
    for number, cell in enumerate(todo, 1):
        started = time.monotonic()
        head = f"[{number}/{len(todo)}] {cell.name}"
        with console.status(f"{head}: lab up") as status:
            show = partial(_show, status, f"{head}: {{}} of {wanted} failures")
            result = measure_cell(cell, wanted, show)
        store.write(result)
        failed += result.failed is not None
        took_s += time.monotonic() - started
        estimated_s += estimate_s(cell, wanted)
        left = _left(todo[number:], wanted, took_s / estimated_s)
        console.print(f"{head}: {_told(result)}; {left}", markup=False)
    return failed


def _show(status: Status, form: str, done: int) -> None:
    status.update(form.format(done))


def estimate_s(cell: Cell, wanted: int) -> float:
    """About how long a cell takes on two idle CPUs, in seconds."""
    fault = cell.fault
    each_s = FAILURE_S + RETURN_S.get(fault.breakage, 0.0)
    if fault.theory_ns is not None:
        each_s += (fault.theory_ns[1] + fault.timers.period_ns / 2) / 1e9
    return CELL_S + (wanted + TRACED) * each_s


def _left(todo: Sequence[Cell], wanted: int, pace: float) -> str:
    return f"{pace * sum(estimate_s(cell, wanted) for cell in todo) / 60:.0f} minutes left"


def _told(result: CellResult) -> str:
    """A cell in a line."""
    if result.failed is not None:
        return f"FAILED: {result.failed.splitlines()[0]}"
    one = summarise([failure.failure for failure in result.failures])
    times = [
        "never" if time_ns is None else format_duration(time_ns)
        for time_ns in (one.median_ns, one.max_ns)
    ]
    rejected = f", {result.rejected} rejected" if result.rejected else ""
    return f"median {times[0]}, max {times[1]}, n={one.n}{rejected}"


def _write(console: Console, store: Store, wanted: int, *, quick: bool) -> None:
    """The page, the data and the plot: to docs/ where the whole plan is measured."""
    every = all_cells() if not quick else chosen_cells("*", QUICK)
    missing = [cell.name for cell in every if store.read(cell) is None]
    is_whole = not quick and not missing and wanted >= FAILURES
    folder = DOCS if is_whole else store.folder / "page"
    command = COMMAND if is_whole else f"python -m bench.convergence --n {wanted}"
    table = ConvergenceTable(SCHEMA_VERSION, command, store.read_all(every), store.read_job())
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        DOCUMENT: to_json(table),
        PLOT: plot(table),
        "convergence-table.md": page(table, missing),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    console.print(f"{len(table.cells)} of {len(every)} cells: {folder / 'convergence-table.md'}")


if __name__ == "__main__":
    typer.run(main)
