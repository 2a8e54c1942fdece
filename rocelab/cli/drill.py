"""`rocelab drill`: lists, previews, runs and compares drills."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.errors import ExpectationError, InputError, MachineError
from rocelab.base.quantities import Unit
from rocelab.cli.arguments import (
    ForceOption,
    JsonOption,
    ResultsOption,
    complete_running,
    completed,
    file_of,
    note_own,
    results_option,
    running_lab,
)
from rocelab.cli.catalog import explain_marks, listed, marked
from rocelab.cli.options import takes_options
from rocelab.lab.kind import UpOptions
from rocelab.report.console import (
    err,
    out,
    progress_bars,
    say,
    show_blocks,
    show_document,
    write,
    write_json,
)
from rocelab.report.document import Column, Table, columns
from rocelab.runs.attempts import RETRIES

if TYPE_CHECKING:
    from rocelab.base.outputs import OutputFile
    from rocelab.results.drill import DrillResult

app = typer.Typer(
    no_args_is_help=True, help="Rehearse failures and jobs: list, explain, run and compare drills."
)


def _complete_drill(incomplete: str) -> list[str]:
    from rocelab.labfile.catalog import DRILLS

    return completed(DRILLS, incomplete)


def _drill_file(text: str) -> Path:
    """The file of the drill that a command line calls `text`. Raises SpecError if it is invalid,
    InputError if there is none."""
    from rocelab.drills.drill_spec import load_drill, named_jobs
    from rocelab.labfile.catalog import DRILLS, JOBS, LABS, tree_of
    from rocelab.labfile.source import read_source

    path = file_of(text, DRILLS)
    note_own(load_drill(path).lab, LABS, tree_of(path))
    for job in dict.fromkeys(job for _, job in named_jobs(read_source(path).data)):
        note_own(job, JOBS, tree_of(path))
    return path


DrillArgument = Annotated[
    str,
    typer.Argument(
        metavar="DRILL",
        help="The name of a drill (in scripts/ of this folder, or shipped), or a path.",
        autocompletion=_complete_drill,
        show_default=False,
    ),
]


@app.command("list")
def list_drills(json: JsonOption = False) -> None:
    """List the drills in scripts/ of this folder and those that ship."""
    from dataclasses import asdict

    from rocelab.drills.drill_spec import load_drill
    from rocelab.drills.listing import row_of
    from rocelab.labfile.catalog import DRILLS

    rows = listed(DRILLS, lambda path: row_of(load_drill(path)))
    if json:
        write_json([{**asdict(row), "name": name, "own": is_own} for name, is_own, row in rows])
        return
    lines = tuple(
        (
            marked(name, is_own),
            row.lab,
            row.kind,
            row.title,
            "" if row.seconds is None else row.seconds,
        )
        for name, is_own, row in rows
    )
    texts = columns(Unit.TEXT, "drill", "lab", "kind", "what it is")
    show_blocks(Table("", (*texts, Column("a repeat", Unit.SECONDS)), lines))
    explain_marks(DRILLS, rows)
    say("A repeat of jobs takes as long as the jobs, plus the time to bring the lab up and down.")


@app.command()
def show(drill: DrillArgument, json: JsonOption = False) -> None:
    """Explain a drill before it is run: lab, traffic, when what breaks, what is expected."""
    from rocelab.drills.plan import planned_drill
    from rocelab.drills.show import document_of
    from rocelab.drills.view import view_document

    planned = planned_drill(_drill_file(drill))
    if json:
        write_json(document_of(planned))
    else:
        console = out()
        document = view_document(planned, console.width, plain=console.options.ascii_only)
        show_document(document)


@app.command()
@takes_options()
def run(
    drill: DrillArgument,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="How many times to run it.", show_default="1"),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(min=0, metavar="N", help="How many invalid runs to repeat at most."),
    ] = RETRIES,
    folder: Annotated[Path | None, results_option("results/DRILL-TIME", panel=None)] = None,
    force: ForceOption = False,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Go on with a drill that ended early, in the folder of its results.",
            show_default=False,
        ),
    ] = None,
    *,
    options: UpOptions,
    json: JsonOption = False,
    keep: Annotated[
        bool,
        typer.Option("--keep", help="Leave the lab up afterwards, and use it if it is already up."),
    ] = False,
    lab: Annotated[
        str | None,
        typer.Option(
            "--lab",
            metavar="LAB",
            help="Run it on this lab, which is up or adopted, instead of its own; it stays up.",
            autocompletion=complete_running,
            show_default=False,
        ),
    ] = None,
    junit: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Also write the outcome as JUnit XML.", show_default=False
        ),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also write the outcome as Markdown, for the page of a CI's job.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a drill: lab up, traffic and faults or jobs, lab down, and the report.

    Exits 0 when every expectation was met, 1 when one was not, 2 when the input is wrong, 3 when
    this machine cannot run the drill, or could not carry it: then nothing was measured.
    """
    from rocelab.base.documents import to_json
    from rocelab.base.outputs import output_file, shown_if_unwritten
    from rocelab.drills.labuse import fresh, kept
    from rocelab.drills.run import run_drill
    from rocelab.lab.providers import provider_of
    from rocelab.report.drill import drill_document

    provider = provider_of(options.runtime, options.image, options.frr, options.frr_memory)
    running = None if lab is None else running_lab(lab)
    keep = keep or running is not None

    def note(text: str) -> None:
        err().print(f"note: {text}", markup=False, soft_wrap=True)

    def show(result: DrillResult) -> None:
        if json:
            write([to_json(result), "\n"])
        else:
            show_document(drill_document(result))

    started = time.monotonic()
    xml, text = (
        None if path is None else output_file(path, overwrite=True, make=True)
        for path in (junit, markdown)
    )
    results: list[DrillResult] = []
    with _outcome_of_errors(drill, xml, text, results):
        path = _drill_file(drill)
        if resume is not None and (folder is not None or force):
            raise InputError(
                "--resume with --out or --force",
                hint="--resume names the folder: its repeats are kept, and it gets the others",
            )
        folder = folder or resume
        if folder is None:
            folder = Path("results") / f"{path.stem}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        with shown_if_unwritten(results, show), progress_bars() as progress:
            use = kept(note, options.frr, options.frr_memory) if keep else fresh
            result = run_drill(
                path,
                repeats=repeat,
                retries=retries,
                out=folder,
                overwrite=force,
                resume=resume is not None,
                dilation=options.dilation,
                progress=progress,
                use=use,
                provider=provider,
                lab=running,
                on_result=results.append,
            )
    # A KPI of a package may raise.
    with _outcome_of_errors(drill, xml, text, ()):
        if xml is not None:
            from rocelab.report.junit import junit_file, junit_of

            xml.write(junit_file(junit_of(result, time.monotonic() - started)))
        if text is not None:
            from rocelab.report.drill import summary_document
            from rocelab.report.renderers.markdown import markdown_of

            text.write(markdown_of(summary_document(result)))
    show(result)
    if not json:
        err().print(f"{folder}/result.json and {folder}/report.html have the rest")
    if keep:
        note(f"lab {result.lab['name']} is still up")
    if result.outcome == "not measured":
        err().print(f"  hint: {_lighter(result)}", markup=False, soft_wrap=True)
        raise typer.Exit(MachineError.exit_code)
    if not result.passed:
        raise typer.Exit(ExpectationError.exit_code)


def _lighter(result: DrillResult) -> str:
    """How to make a machine carry a drill that it did not."""
    if result.has_jobs:
        lower = f"raise --dilation (now {result.dilation:g})"
    else:
        lower = "lower traffic.flows or traffic.rate_pps in a copy of the drill's file"
    return f"{lower}, stop other programs, or allow more runs with --retries"


ResultArgument = Annotated[
    Path,
    typer.Argument(
        help="A folder of results, or its result.json; of any machine.", show_default=False
    ),
]


@app.command()
def diff(
    old: ResultArgument,
    new: ResultArgument,
    folder: ResultsOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Compare two results of the same drill: figures with their spread, whether repeats tell them
    apart, expectations, machine, drill and lab.

    rocelab drill diff results/frr-8 results/frr-10 --out results/frr-8-to-10

    Exits 0 whatever the difference: what must not happen is an expectation of the drill.
    """
    from rocelab.base.documents import fitting, to_json
    from rocelab.base.outputs import REPORT, RESULT, results_folder
    from rocelab.report.difference import difference_document
    from rocelab.report.renderers.page import html
    from rocelab.results.difference import difference

    with fitting(f"{old} or {new}"):
        result = difference(old, new)
        document = difference_document(result)
        if folder is not None:
            with results_folder(folder, overwrite=force) as opened:
                opened.replace_all({RESULT: to_json(result), REPORT: html(document)})
        if json:
            write([to_json(result)])
        else:
            show_document(document)


@app.command()
def gate(
    old: ResultArgument,
    new: ResultArgument,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIGURE",
            help="A figure that must not get worse, as result.json names it; repeatable.",
            show_default="those that the drill has expectations of",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Fail if a drill's new result is worse than the old one, as a step of CI does.

    rocelab drill gate baseline/link-flap results/link-flap --figure lost_packets

    A figure is worse if repeats tell the two results apart, by a rank-sum test corrected for the
    number of figures. Exits 0 when none is worse, 1 when one is or an expectation is no longer met,
    2 when the input is wrong, 3 when too few repeats were measured to tell.
    """
    from rocelab.base.documents import fitting, to_json
    from rocelab.report.gate import gate_document
    from rocelab.results.difference import difference
    from rocelab.results.gate import GateOutcome
    from rocelab.results.gate import gate as compared

    with fitting(f"{old} or {new}"):
        result = compared(difference(old, new), figure or ())
        if json:
            write([to_json(result)])
        else:
            show_document(gate_document(result))
    if result.outcome is GateOutcome.WORSE:
        raise typer.Exit(ExpectationError.exit_code)
    if result.outcome is GateOutcome.UNKNOWN:
        if not json:
            err().print("  hint: run both with --repeat 5 or more", markup=False)
        raise typer.Exit(MachineError.exit_code)


@contextmanager
def _outcome_of_errors(
    drill: str,
    xml: OutputFile | None,
    text: OutputFile | None,
    results: Sequence[DrillResult],
) -> Iterator[None]:
    """Write an error that ends the drill, Ctrl-C too, as JUnit XML and Markdown, and raise it
    again. `results` has by then the result of the repeats before it, if there are any."""
    from rocelab.base.plugin_errors import plugin_error
    from rocelab.report.drill import error_document, summary_document
    from rocelab.report.junit import junit_file, junit_of, junit_of_error
    from rocelab.report.renderers.markdown import markdown_of

    started = time.monotonic()
    name = Path(drill).stem
    try:
        yield
    except BaseException as error:
        cause = plugin_error(error) or error
        seconds = time.monotonic() - started
        result = results[-1] if results else None
        if xml is not None:
            xml.write(
                junit_file(
                    junit_of_error(name, cause, seconds)
                    if result is None
                    else junit_of(result, seconds)
                )
            )
        if text is not None:
            document = error_document(name, cause) if result is None else summary_document(result)
            text.write(markdown_of(document))
        raise
