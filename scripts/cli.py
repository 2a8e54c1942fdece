"""The console script `rocelab`: the commands of `labs.cli`, `drill` and `traffic`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from labs.cli.app import build_app, run
from labs.cli.arguments import JsonOption
from labs.cli.console import err, out, progress_bars, write
from scripts.compare.command import compare
from scripts.job.command import traffic
from scripts.predict.command import predict


def _complete_drill(incomplete: str) -> list[str]:
    from scripts.drill.catalog import drill_names

    return [name for name in drill_names() if name.startswith(incomplete)]


def drill(
    name: Annotated[
        str,
        typer.Argument(
            metavar="DRILL",
            help="A drill of the catalog, or the path of a YAML file.",
            autocompletion=_complete_drill,
            show_default=False,
        ),
    ],
    repeat: Annotated[int, typer.Option(min=1, metavar="N", help="How many times to run it.")] = 1,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where result.json and report.html go.",
            show_default="results/DRILL-TIME",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a drill: lab up, traffic and faults or jobs, lab down, and what came of it. Exits 1 when
    an expectation of the drill failed."""
    from report.phases.terminal import print_job_result
    from report.terminal import print_result
    from scripts.documents import to_json
    from scripts.drill.catalog import find_drill
    from scripts.drill.phases.result import JobDrillResult
    from scripts.drill.run import run_drill

    path = find_drill(name)
    if folder is None:
        folder = Path("results") / f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    with progress_bars() as progress:
        result = run_drill(path, repeats=repeat, out=folder, progress=progress)
    if json:
        write([to_json(result), "\n"])
    else:
        if isinstance(result, JobDrillResult):
            print_job_result(result, out())
        else:
            print_result(result, out())
        err().print(f"{folder}/result.json and {folder}/report.html have the rest")
    if not result.passed:
        raise typer.Exit(1)


def build() -> typer.Typer:
    """The whole command line."""
    app = build_app()
    app.command("drill", rich_help_panel="Measure")(drill)
    app.command("traffic", rich_help_panel="Measure")(traffic)
    app.command("compare", rich_help_panel="Measure")(compare)
    app.command("predict", rich_help_panel="Plan")(predict)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, sys.argv by default. Always ends with SystemExit."""
    run(build(), arguments)
