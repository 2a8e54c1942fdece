"""`rocelab diagnose`: the cause of a slow job, from its result.json."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import ForceOption, JsonOption
from rocelab.report.console import err, out, show_document, write

if TYPE_CHECKING:
    from rocelab.base.outputs import OutputFile
    from rocelab.results.job import JobReport

PICTURES = (".svg", ".png")


def diagnose(
    result: Annotated[
        Path,
        typer.Argument(
            metavar="RESULT.json",
            help="The document that `rocelab traffic --out DIR` or `rocelab drill run` wrote.",
            show_default=False,
        ),
    ],
    picture: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A map of ranks and steps, how late each was, as .svg or .png.",
            show_default=False,
        ),
    ] = None,
    phase: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For a drill: the phase whose job is diagnosed, in its first valid repeat.",
            show_default=False,
        ),
    ] = None,
    network: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="For a lab with several networks: the one whose job is diagnosed. By default a "
            "drill's first.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Find what slowed a job down: a paused host, a grey, slow or congested link, or nothing;
    with PFC also a slow receiver, a pause storm, an incast, or being a victim of one of them.

    Works on the job's document alone: times of every send, counters of queue pairs, ports and
    queues, and the paths that the lab's plan predicts.

    rocelab traffic zone-small --pattern allreduce --ranks 8 --size 16MB --out results/job

    rocelab diagnose results/job/result.json --picture map.svg

    rocelab diagnose results/slow-receiver-TIME/result.json --phase slow
    """
    from rocelab.base.documents import fitting, to_json
    from rocelab.diagnose.diagnose import diagnose_report
    from rocelab.diagnose.document import diagnosis_document
    from rocelab.diagnose.page import drawn

    target = None if picture is None else _picture(picture, overwrite=force)
    report = _read(result, phase, network)
    with fitting(str(result)):
        diagnosis, case = diagnose_report(report)
        if json:
            write([to_json(diagnosis)])
        else:
            show_document(diagnosis_document(diagnosis, case, out().width))
        if target is not None:
            target.write(drawn(diagnosis, case, target.path.suffix))
    if picture is not None:
        err().print(f"written: {picture}", markup=False, soft_wrap=True)


def _read(path: Path, phase: str | None, network: str | None) -> JobReport:
    from rocelab.base.documents import read_text
    from rocelab.base.errors import InputError
    from rocelab.results import drill, job

    text = read_text(
        path, hint="give the result.json that `rocelab traffic` or `rocelab drill run` wrote"
    )
    if phase is not None:
        return drill.from_json(text).job_of(phase, network)
    report = job.from_json(text)
    if network is not None and not report.is_in(network):
        raise InputError(
            f"the job of {path} is not in network {network}",
            f"it is in {report.network_name}" if report.network_name else "its lab has one network",
        )
    return report


def _picture(path: Path, *, overwrite: bool) -> OutputFile:
    from rocelab.base.errors import InputError
    from rocelab.base.outputs import output_file

    if path.suffix not in PICTURES:
        raise InputError(f"{path} is neither .svg nor .png", hint="end the name in one of them")
    return output_file(path, overwrite=overwrite)
