"""`rocelab sweep`: one simulation for each combination of values, compared side by side,
resumable."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import JsonOption, note_own
from rocelab.cli.options import takes_options
from rocelab.cli.simulate import simulation_progress
from rocelab.report.console import err, show_blocks, write_json
from rocelab.sim.sweep.options import SweepOptions

if TYPE_CHECKING:
    from rocelab.sim.sweep.run import SweepResult
    from rocelab.sim.sweep.store import Row
    from rocelab.sim.sweep.sweep_spec import Sweep

_SHOWN_ROWS = 40
_INTERRUPTED = 130


@takes_options()
def sweep(
    sweep_file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A sweep as YAML: lab, job, and in `over` the values of each key.",
            show_default=False,
        ),
    ],
    *,
    options: SweepOptions,
    json: JsonOption = False,
) -> None:
    """Simulate every combination of values of a lab's and a job's keys, and report side by side.

    Finished cells are kept: after an interrupt, or kill -9, the same command continues.

    rocelab sweep examples/uplinks.yaml --workers 4

    Exits 1 where a cell failed.
    """
    from rocelab.labfile.catalog import JOBS, LABS, tree_of
    from rocelab.sim.sweep.run import run_sweep
    from rocelab.sim.sweep.sweep_spec import read_sweep
    from rocelab.sim.sweep.workerpool import hire_of

    asked = read_sweep(sweep_file)
    for key, catalog in (("lab", LABS), ("job", JOBS)):
        named = asked.source.data[key]
        if isinstance(named, str):
            note_own(named, catalog, tree_of(sweep_file))
    folder = options.folder_of(sweep_file)
    with simulation_progress() as progress:
        result = run_sweep(
            asked,
            folder,
            hire_of(options),
            progress=progress,
            say=partial(typer.echo, err=True),
        )
    if json:
        write_json(result.rows)
    elif not result.left and len(result.failed) < len(result.rows):
        _print_rows(asked, result)
    _conclude(asked, result, folder)


def _print_rows(asked: Sweep, result: SweepResult) -> None:
    from rocelab.sim.sweep.report import NOT_DRAWN, figure_names, figures_table

    good = [row for row in result.rows if row["error"] is None]
    names = [name for name in figure_names(asked, good) if name not in NOT_DRAWN]
    table = figures_table(asked, good, names, extremes=False)
    show_blocks(replace(table, title="Medians", most=_SHOWN_ROWS))


def _conclude(asked: Sweep, result: SweepResult, folder: Path) -> None:
    from rocelab.sim.sweep.report import settings_text, warned_rows

    console = err()
    for word, style, by_text in (
        ("failed", "red", _by_error(result)),
        ("warning", "yellow", warned_rows([row for row in result.rows if row["error"] is None])),
    ):
        for text, rows in by_text.items():
            cells = "1 cell" if len(rows) == 1 else f"{len(rows):,} cells, the first"
            said = f"{word}: {text.splitlines()[0]} ({cells} with {settings_text(asked, rows[0])})"
            console.print(said, style=style, markup=False, soft_wrap=True)
    if result.left:
        console.print(
            f"{result.left:,} cells are left; the same command continues from here", markup=False
        )
        raise typer.Exit(_INTERRUPTED)
    done = (
        f"{result.ran:,} cells were run, {result.reused:,} were there"
        if result.ran
        else f"nothing to do: all {result.reused:,} cells are there"
    )
    console.print(
        f"{done}: {folder}/sweep.parquet, {folder}/report.html", markup=False, soft_wrap=True
    )
    if result.failed:
        raise typer.Exit(1)


def _by_error(result: SweepResult) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = {}
    for row in result.failed:
        rows.setdefault(row["error"], []).append(row)
    return rows
