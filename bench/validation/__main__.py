"""`make validation`: compares rocelab's simulator with published figures, as docs/validation.md.

Measures every case in a process per CPU, then writes the numbers, the plots and the page. With
fewer `--seeds`, or `--render`, it is a quick check: the page states the number of seeds.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from bench.validation import engineering, fluid, hashing, history, hpn, scaling, volumes
from bench.validation.document import FORMAT, SCHEMA_VERSION, Validation
from bench.validation.plot import plots
from bench.validation.render import DATA, PAGE, pages
from bench.validation.run import measure
from rocelab import RocelabError
from rocelab.base.documents import to_json
from rocelab.base.interruption import ending
from rocelab.base.progress import Progress
from rocelab.sim.figures import simulation_environment

SEEDS = 12
COMMAND = "make validation"
DOCS = Path(__file__).parents[2] / "docs"
CASES = (hashing, scaling, engineering, history, hpn, volumes, fluid)


def main(
    seeds: Annotated[int, typer.Option(min=2, help="repeats of whatever is drawn")] = SEEDS,
    out: Annotated[Path, typer.Option(help="folder of the page")] = DOCS,
    render: Annotated[bool, typer.Option(help="only make the page of the numbers there")] = False,
) -> None:
    """Measure, and write the page."""
    console = Console(stderr=True)
    try:
        if render:
            document = FORMAT.read((out / DATA).read_text(encoding="utf-8"))
        else:
            document = _measured(console, seeds)
    except RocelabError as error:
        console.print(str(error), style="red", markup=False)
        sys.exit(error.exit_code)
    out.mkdir(parents=True, exist_ok=True)
    texts = {DATA: to_json(document), **pages(document), **plots(document)}
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    console.print(f"{out / PAGE}: {document.took_s:.0f} s")


def _measured(console: Console, seeds: int) -> Validation:
    tasks = [task for case in CASES for task in case.tasks(seeds)]
    workers = len(os.sched_getaffinity(0))
    begun = time.monotonic()
    with console.status("validating") as status:

        def show(progress: Progress) -> None:
            status.update(f"validating: {progress.done} of {progress.total}")

        values = measure(tasks, workers, show)
    took_s = time.monotonic() - begun
    command = COMMAND if seeds == SEEDS else f"python -m bench.validation --seeds {seeds}"
    return Validation(
        SCHEMA_VERSION, command, simulation_environment(), seeds, round(took_s, 1), values
    )


if __name__ == "__main__":
    with ending():
        typer.run(main)
