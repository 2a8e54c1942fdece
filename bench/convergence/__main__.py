"""`make convergence-table`: the convergence times of FRR on Linux, by fault, fabric and fan-out.

Measures each cell of the plan on its own lab and keeps it below `--results`; the same command
continues a run that ended early. With `--frr` it measures the cells for the comparison of FRR
releases instead, each with this machine's FRR and right after that with the other one. Once every
cell is measured the page goes to docs/; until then it is in the folder of the cells.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from bench.convergence.document import (
    SCHEMA_VERSION,
    TABLE,
    CellResult,
    ConvergenceTable,
    summarise,
)
from bench.convergence.job import measure_job
from bench.convergence.plan import COMPARED, LAB_NAME, QUICK, Cell, all_cells, chosen_cells
from bench.convergence.plot import plot
from bench.convergence.render import DOCUMENT, PAGE, PLOT, pages
from bench.convergence.run import TRACED, measure_cell
from bench.convergence.store import Store
from rocelab import InputError, RocelabError
from rocelab.base import quantities
from rocelab.base.documents import to_json
from rocelab.base.interruption import ending
from rocelab.record import recorded_labs
from rocelab.routing.frr.installation import find_installation
from rocelab.sim.events.reaction import Breakage

FAILURES = 20
QUICK_FAILURES = 3
COMMAND = "make convergence-table"
DOCS = Path(__file__).parents[2] / "docs"
RESULTS = Path("results/convergence-table")
QUICK_RESULTS = Path("results/convergence-table-quick")

CELL_S, FAILURE_S = 8.0, 2.4
"""The time of a lab's start and end, and of a failure with its repair, on two CPUs without the
detection timer; a first guess, scaled by the times of this run's cells."""

RETURN_S = {Breakage.CRASH: 1.0, Breakage.POWER: 1.5}
"""The additional time of a daemon or a switch to come back."""


@dataclass(frozen=True, slots=True)
class Task:
    """A cell to measure, its store, and the folder of its FRR if it is not this machine's."""

    cell: Cell
    store: Store
    title: str
    frr: Path | None = None


def main(
    cells: Annotated[str, typer.Option(help="only cells whose name fits this glob")] = "*",
    n: Annotated[int | None, typer.Option(min=1, help="failures a cell; 20, or 3 if quick")] = None,
    quick: Annotated[bool, typer.Option(help="few cells, to try it")] = False,
    again: Annotated[bool, typer.Option(help="also cells that are measured already")] = False,
    plan: Annotated[bool, typer.Option(help="only list the cells and the time they take")] = False,
    frr: Annotated[Path | None, typer.Option(help="the folder of another FRR")] = None,
    published: Annotated[
        bool, typer.Option(help="take cells that are missing from docs/convergence-table.json")
    ] = False,
    results: Annotated[
        Path | None, typer.Option(help="folder of measured cells [results/convergence-table]")
    ] = None,
) -> None:
    """Measure the cells that are missing, and write the table of all that are there."""
    console = Console(stderr=True, soft_wrap=True)
    wanted = n or (QUICK_FAILURES if quick else FAILURES)
    store = Store(results or (QUICK_RESULTS if quick else RESULTS))
    try:
        if published:
            store.take(TABLE.read((DOCS / DOCUMENT).read_text(encoding="utf-8")))
        if frr is None:
            chosen = [
                Task(cell, store, cell.name) for cell in chosen_cells(cells, QUICK if quick else ())
            ]
        else:
            _need_root()
            chosen = _comparison(store, chosen_cells(cells, _compared(quick=quick)), frr)
        todo = [part for part in chosen if again or part.store.unfinished((part.cell,), wanted)]
        if plan:
            _list(console, chosen, todo, wanted)
            return
        if todo:
            _need_root()
        if todo and LAB_NAME in recorded_labs():
            raise InputError(
                f"lab {LAB_NAME} is up: another run, or one that was killed",
                hint=f"in the second case take it down with `rocelab down {LAB_NAME}`",
            )
        failed = _measure(console, todo, wanted)
        if frr is None and cells == "*" and (again or _lacks_job(store, wanted)):
            with console.status(f"link-failure test, {wanted} jobs"):
                store.write_job(measure_job(wanted))
        _write(console, store, wanted, quick=quick)
    except RocelabError as error:
        console.print(str(error), style="red", markup=False)
        sys.exit(error.exit_code)
    if failed:
        sys.exit(1)


def _need_root() -> None:
    if os.geteuid() != 0:
        raise InputError("labs need root", hint=f"sudo {COMMAND}, or run this as root")


def _compared(*, quick: bool) -> Sequence[str]:
    return [name for name in COMPARED if not quick or name in QUICK]


def _comparison(store: Store, cells: Sequence[Cell], frr: Path) -> list[Task]:
    """Tasks for each cell with this machine's FRR and then with the one in `frr`.

    Raises InputError if the two have the same version, and as `find_installation` does.
    """
    versions = {find_installation(folder).version: folder for folder in (None, frr)}
    if len(versions) == 1:
        raise InputError(
            f"{frr} has FRR {next(iter(versions))}, as this machine has",
            hint="--frr compares it with another release",
        )
    return [
        Task(cell, store.of_release(version), f"{cell.name}, FRR {version}", folder)
        for cell in cells
        for version, folder in versions.items()
    ]


def _lacks_job(store: Store, wanted: int) -> bool:
    job = store.read_job()
    return job is None or len(job.impacts) + job.rejected < wanted


def _list(console: Console, chosen: Sequence[Task], todo: Sequence[Task], wanted: int) -> None:
    for task in chosen:
        state = "" if task in todo else "  (measured)"
        print(f"{task.title:34} {estimate_s(task.cell, wanted):5.0f} s{state}")
    console.print(f"{len(todo)} cells to measure, {_left(todo, wanted, 1.0)}")


def _measure(console: Console, todo: Sequence[Task], wanted: int) -> int:
    """Measure these cells; return the number that failed."""
    if todo:
        console.print(f"{len(todo)} cells, {_left(todo, wanted, 1.0)}")
    failed, took_s, estimated_s = 0, 0.0, 0.0
    for number, task in enumerate(todo, 1):
        started = time.monotonic()
        head = f"[{number}/{len(todo)}] {task.title}"
        with console.status(f"{head}: lab up") as status:
            show = partial(_show, status, f"{head}: {{}} of {wanted} failures")
            result = measure_cell(task.cell, wanted, show, task.frr)
        task.store.write(result)
        failed += result.failed is not None
        took_s += time.monotonic() - started
        estimated_s += estimate_s(task.cell, wanted)
        left = _left(todo[number:], wanted, took_s / estimated_s)
        console.print(f"{head}: {_told(result)}; {left}", markup=False)
    return failed


def _show(status: Status, form: str, done: int) -> None:
    status.update(form.format(done))


def estimate_s(cell: Cell, wanted: int) -> float:
    """The estimated time of a cell on two idle CPUs, in seconds."""
    fault = cell.fault
    each_s = FAILURE_S + RETURN_S.get(fault.breakage, 0.0)
    if fault.theory_ns is not None:
        each_s += (fault.theory_ns[1] + fault.timers.period_ns / 2) / 1e9
    return CELL_S + (wanted + TRACED) * each_s


def _left(todo: Sequence[Task], wanted: int, pace: float) -> str:
    return f"{pace * sum(estimate_s(task.cell, wanted) for task in todo) / 60:.0f} minutes left"


def _told(result: CellResult) -> str:
    """A cell as a line of text."""
    if result.failed is not None:
        return f"FAILED: {result.failed.splitlines()[0]}"
    one = summarise([failure.failure for failure in result.failures])
    times = [
        "never" if time_ns is None else quantities.duration(time_ns)
        for time_ns in (one.median_ns, one.max_ns)
    ]
    rejected = f", {result.rejected} rejected" if result.rejected else ""
    return f"median {times[0]}, max {times[1]}, n={one.n}{rejected}"


def _write(console: Console, store: Store, wanted: int, *, quick: bool) -> None:
    """Write the page, the data and the plot: to docs/ if the whole plan is measured."""
    every = all_cells() if not quick else chosen_cells("*", QUICK)
    compared = [cell for cell in every if cell.name in COMPARED]
    stores = {version: store.of_release(version) for version in store.releases()}
    missing = [cell.name for cell in every if store.read(cell) is None]
    missing += [
        f"{cell.name} (FRR {version})"
        for cell in compared
        for version, its in stores.items()
        if its.read(cell) is None
    ]
    is_whole = not quick and not missing and wanted >= FAILURES
    folder = DOCS if is_whole else store.folder / "page"
    command = COMMAND if is_whole else f"python -m bench.convergence --n {wanted}"
    releases = [its.read_all((cell,)) for cell in compared for its in stores.values()]
    table = ConvergenceTable(
        schema_version=SCHEMA_VERSION,
        command=command,
        cells=store.read_all(every),
        job=store.read_job(),
        releases=tuple(chain.from_iterable(releases)),
    )
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        DOCUMENT: to_json(table),
        PLOT: plot(table),
        **pages(table, missing),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    console.print(f"{len(table.cells)} of {len(every)} cells: {folder / PAGE}")


if __name__ == "__main__":
    with ending():
        typer.run(main)
