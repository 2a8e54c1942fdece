"""`rocelab traffic`: a collective or streams over a running lab, and its figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import (
    ForceOption,
    JsonOption,
    OneRunningLab,
    ResultsOption,
    complete_jobs,
    file_of,
    running_lab,
)
from rocelab.cli.options import named_options, takes_options
from rocelab.linux.rights import need_root
from rocelab.report.console import err, progress_bars, show_document, write
from rocelab.runs.options import JobRunOptions

if TYPE_CHECKING:
    from rocelab.jobs.job_spec import LabJob
    from rocelab.results.job import JobReport


@takes_options()
def traffic(
    lab: OneRunningLab = None,
    job_file: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="FILE",
            help="A job or several as YAML, instead of the options below: a name (in "
            "traffic/ of this folder, or shipped, such as allreduce), or a path. Jobs of several "
            "kinds are those that `rocelab simulate` takes.",
            show_default=False,
            autocompletion=complete_jobs,
            rich_help_panel="Input and output",
        ),
    ] = None,
    folder: ResultsOption = None,
    *,
    options: JobRunOptions,
    force: ForceOption = False,
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Run jobs on a running lab, emulating RoCE NICs.

    Each rank has a NIC of its own, with queue pairs to the ranks it talks to. The lab stays up and
    as it was. Times and bandwidths are those of the modelled network, so they compare with a real
    cluster's; both clocks are in the JSON.

    rocelab traffic --pattern allreduce --ranks 8 --size 64MB --qps 4

    rocelab traffic --pattern incast --ranks 4 --duration 20ms --dcqcn sigcomm15

    With --allow-faults, `rocelab fault inject` and the page of `rocelab live` may break the lab
    during the run. The result is then marked as disturbed, with what disturbed it, when and for how
    long, and never counts as one of the undisturbed lab.

    Exits 0 when measured, disturbed or not, 1 when a queue pair failed, 2 when the input is wrong,
    3 when this machine could not carry the run: its figures are then invalid.
    """
    from rocelab.base.outputs import shown_if_unwritten
    from rocelab.runs.jobs import run_listed_jobs

    jobs = _jobs(job_file, named_options(job))
    need_root("sending in a lab")
    chosen = running_lab(lab)
    warned: list[str] = []
    results: list[tuple[JobReport, ...]] = []

    def warn(text: str) -> None:
        warned.append(text)
        _warn(text)

    printed = shown_if_unwritten(results, lambda reports: _show(reports, json))
    with printed, progress_bars() as progress:
        reports = run_listed_jobs(
            chosen,
            jobs,
            out=folder,
            overwrite=force,
            pcap=options.pcap,
            allow_faults=options.allow_faults,
            progress=progress,
            on_warning=warn,
            on_results=results.append,
        )
    _show(reports, json)
    for text in dict.fromkeys(text for report in reports for text in report.warnings):
        if text not in warned:
            _warn(text)
    files = "result.json, report.html"
    if len(reports) > 1:
        files = f"result-1.json to result-{len(reports)}.json, and their pages"
    for written in (folder and f"{folder}/{files}", options.pcap):
        if written is not None:
            err().print(f"written: {written}", markup=False, soft_wrap=True)
    if any(report.problems for report in reports):
        raise typer.Exit(3)
    if any(report.errors for report in reports):
        raise typer.Exit(1)


def _warn(text: str) -> None:
    err().print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)


def _jobs(job_file: str | None, options: dict[str, str]) -> tuple[LabJob, ...]:
    from rocelab.base.errors import InputError
    from rocelab.jobs.options import job_from_options, jobs_from_file
    from rocelab.labfile.catalog import JOBS

    if job_file is None:
        return (job_from_options(options),)
    if options:
        raise InputError(
            f"--job with {', '.join(f'--{name}' for name in options)}",
            hint="write it into the file, or leave --job out",
        )
    return jobs_from_file(file_of(job_file, JOBS))


def _show(reports: tuple[JobReport, ...], json: bool) -> None:
    """Print the documents of jobs; of several as JSON a list."""
    from rocelab.base.documents import to_json
    from rocelab.report.job import disturbed_by, job_document

    if json:
        texts = [to_json(report).rstrip("\n") for report in reports]
        write([*texts, "\n"] if len(texts) == 1 else ["[\n", ",\n".join(texts), "\n]\n"])
    wrong = dict.fromkeys(
        text
        for report in reports
        for text in (*report.problems, *report.errors, *disturbed_by(report.disturbed))
    )
    if json:
        for text in wrong:
            err().print(text, style="red", markup=False, soft_wrap=True)
        return
    for report in reports:
        show_document(job_document(report))
