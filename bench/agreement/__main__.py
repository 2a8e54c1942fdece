"""`python -m bench.agreement`: compares the catalog's labs with the simulator.

Runs each lab's jobs and keeps the results below `--results`; the same command continues a run that
ended early. Runs that are kept of a lab count too, where the software was the same. The data is
in that folder. Once every lab is measured the page goes to docs/; until then it is there too.
"""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.status import Status

from bench.agreement.anew import simulated_anew
from bench.agreement.document import AGREEMENT, SCHEMA_VERSION, Agreement, LabResult
from bench.agreement.plan import NOT_RUN, cells_of, chosen_labs
from bench.agreement.render import DOCUMENT, PAGE, pages
from bench.agreement.run import RUNS, measure_lab
from bench.agreement.significance import Verdict
from bench.agreement.store import Store
from rocelab import InputError, RocelabError
from rocelab.base.documents import to_json
from rocelab.base.interruption import ending
from rocelab.record import recorded_labs

COMMAND = "python -m bench.agreement"
DOCS = Path(__file__).parents[2] / "docs"
RESULTS = Path("results/agreement")
OVERHEAD_S = 2.0
"""The overhead of a run beyond its sending, on two CPUs."""


def main(
    labs: Annotated[str, typer.Option(help="only labs whose name fits this glob")] = "*",
    again: Annotated[bool, typer.Option(help="labs that are there too: runs add up")] = False,
    simulate: Annotated[
        bool,
        typer.Option(
            help="only simulate again the runs of labs that --results has, and write the table"
        ),
    ] = False,
    plan: Annotated[bool, typer.Option(help="only list what is run and the time it takes")] = False,
    results: Annotated[Path, typer.Option(help="folder of compared labs")] = RESULTS,
) -> None:
    """Compare the labs that are missing, and write the table of all that are there."""
    console = Console(stderr=True, soft_wrap=True)
    store = Store(results)
    try:
        if simulate:
            _write_page(console, store, simulated_anew(_read(store)), [], DOCS)
            return
        chosen = chosen_labs(labs)
        todo = [name for name in chosen if again or not store.is_finished(name)]
        if plan:
            _list(todo)
            return
        if todo and os.geteuid() != 0:
            raise InputError("labs need root", hint=f"sudo {COMMAND}, or run this as root")
        running = sorted(set(todo) & set(recorded_labs()))
        if running:
            raise InputError(
                f"labs are up that are to be run: {', '.join(running)}",
                hint="take them down with `rocelab down LAB`",
            )
        for number, name in enumerate(todo, 1):
            head = f"[{number}/{len(todo)}] {name}"
            with console.status(f"{head}: simulating") as status:
                cells = cells_of(name)
                result = measure_lab(name, cells, partial(_show, status, head))
            earlier = store.read(name)
            store.write(result if earlier is None else result.after(earlier))
            console.print(f"{head}: {_told(result)}", markup=False)
        _write(console, store)
    except RocelabError as error:
        console.print(str(error), style="red", markup=False)
        sys.exit(error.exit_code)


def _show(status: Status, head: str, what: str) -> None:
    status.update(f"{head}: {what}")


def _list(todo: list[str]) -> None:
    total_s = 0.0
    for name in todo:
        started = time.monotonic()
        cells = cells_of(name)
        simulated_s = time.monotonic() - started
        for cell in cells:
            size = cell.job.size or 0
            print(
                f"{name:18} {cell.shape.name:18} {cell.spec.scheme.kind:13} "
                f"{cell.job.ranks:3} ranks {size / 1e6:6.1f} MB {cell.lab_s:5.1f} s"
            )
        total_s += simulated_s + RUNS * sum(cell.lab_s + OVERHEAD_S for cell in cells)
    print(f"{len(todo)} labs, at most about {total_s / 60:.0f} minutes")


def _told(result: LabResult) -> str:
    """A lab as a line of text."""
    carried = [cell for cell in result.cells if cell.loads is not None]
    within = sum(cell.packets_ratio.verdict is Verdict.AGREES for cell in carried)
    equal = sum(cell.loads is not None and cell.loads.agree for cell in carried)
    failed = "" if result.failed is None else f", FAILED: {result.failed.splitlines()[0]}"
    return (
        f"{len(carried)} of {len(result.cells)} jobs carried, loads equal in {equal}, busbw of the "
        f"packet engine agrees in {within}, {result.took_s:.0f} s{failed}"
    )


def _write(console: Console, store: Store) -> None:
    """Write the page and the data: to docs/ if every lab was run."""
    every = chosen_labs()
    kept = [result for name in every if (result := store.read(name)) is not None]
    missing = [name for name in every if not store.is_finished(name)]
    folder = store.folder / "page" if missing else DOCS
    agreement = Agreement(SCHEMA_VERSION, COMMAND, tuple(kept), NOT_RUN)
    _write_page(console, store, agreement, missing, folder)


def _read(store: Store) -> Agreement:
    """The data of a page that was made. Raises InputError if there is none."""
    path = store.folder / DOCUMENT
    if not path.is_file():
        raise InputError(
            f"there is no {path}",
            hint=f"`{COMMAND}` writes it; bench/README.md says where that of docs/agreement.md is",
        )
    return AGREEMENT.read(path.read_text(encoding="utf-8"))


def _write_page(
    console: Console, store: Store, agreement: Agreement, missing: list[str], folder: Path
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (store.folder / DOCUMENT).write_text(to_json(agreement), encoding="utf-8")
    for name, text in pages(agreement, missing).items():
        (folder / name).write_text(text, encoding="utf-8")
    console.print(f"{len(agreement.labs)} labs, {len(missing)} missing: {folder / PAGE}")


if __name__ == "__main__":
    with ending():
        typer.run(main)
