"""`rocelab compare`: schemes, queue pairs and placements side by side on one lab."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import (
    ForceOption,
    JsonOption,
    LabArgument,
    results_option,
    running_or_planned,
)
from rocelab.cli.options import named_options, option_of, takes_options
from rocelab.drills.compare.options import MatrixOptions
from rocelab.lab.kind import UpOptions
from rocelab.linux.rights import need_root
from rocelab.report.console import err, show_document, write

if TYPE_CHECKING:
    from rocelab.base.progress import Progress, ProgressSink
    from rocelab.results.comparison import Comparison


@takes_options(
    but=(
        *("qps", "placement", "duration", "starts", "out-of-order", "selective-repeat"),
        *("transport", "congestion-control", "connections"),
    )
)
def compare(
    lab: LabArgument,
    *,
    matrix: MatrixOptions,
    folder: Annotated[Path | None, results_option("results/compare-LAB-TIME")] = None,
    force: ForceOption = False,
    frr: Annotated[Path | None, option_of(UpOptions, "frr")] = None,
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Run a job under every scheme, number of queue pairs and placement, and compare the results.

    The lab is brought up, or used as it runs. By default the job is an allreduce of 4MB over all
    NICs, 3 times, every message split over all queue pairs.

    rocelab compare zone-1-1 --schemes ecmp,e-ecmp,spray --qps 1,4,16

    Exits 3 when no run was valid.
    """
    from rocelab.base.documents import to_json
    from rocelab.base.outputs import REPORT, RESULT, results_folder, shown_if_unwritten
    from rocelab.drills.compare.matrix import cells
    from rocelab.drills.compare.run import compare as run_comparison
    from rocelab.lab.lab import Lab
    from rocelab.observe.evidence.unconverged import keep_unconverged
    from rocelab.report.compare.document import comparison_document
    from rocelab.report.renderers.page import html
    from rocelab.results.comparison import Status
    from rocelab.results.environment import typed_command

    chosen = running_or_planned(lab, frr)
    options = named_options(job)
    asked = cells(chosen.fabric.network(options.get("network")), matrix, options)
    need_root("running a comparison")
    if folder is None:
        folder = Path("results") / f"compare-{chosen.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"

    def show(comparison: Comparison) -> None:
        if json:
            write([to_json(comparison)])
        else:
            show_document(comparison_document(comparison))

    with results_folder(folder, overwrite=force) as opened:
        if isinstance(chosen, Lab):
            keep_unconverged(chosen, opened)
        with _steps() as progress:
            comparison = run_comparison(
                chosen,
                asked,
                repeats=matrix.repeat,
                command=typed_command() or "",
                progress=progress,
            )
        with shown_if_unwritten([comparison], show):
            opened.replace_all(
                {RESULT: to_json(comparison), REPORT: html(comparison_document(comparison))}
            )
    show(comparison)
    err().print(f"written: {folder}/result.json, {folder}/report.html", markup=False)
    if not any(cell.status is Status.MEASURED for cell in comparison.cells):
        raise typer.Exit(3)


@contextmanager
def _steps() -> Iterator[ProgressSink]:
    """A bar over all runs with the remaining time, and under it the present step."""
    from rich import progress as rich

    console = err()
    columns = (
        rich.TextColumn("{task.description:<32}", markup=False),
        rich.BarColumn(),
        rich.MofNCompleteColumn(),
        rich.TimeElapsedColumn(),
        rich.TextColumn("left"),
        rich.TimeRemainingColumn(),
    )
    bar = rich.Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = None

    def show(step: Progress) -> None:
        nonlocal task
        if task is None:
            bar.start()
            task = bar.add_task(step.stage, total=step.total)
        if bar.tasks[0].total != step.total:
            bar.reset(task, total=step.total)
        bar.update(task, description=step.stage, completed=step.done)

    try:
        yield show
    finally:
        bar.stop()
