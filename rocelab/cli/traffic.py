"""`rocelab traffic`: a collective or streams over a running lab, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

from rocelab.cli.arguments import (
    ForceOption,
    JsonOption,
    OneRunningLab,
    complete_jobs,
    file_of,
    running_lab,
)
from rocelab.cli.handover import handed_over
from rocelab.kernel.rights import need_root
from rocelab.report.console import err, out, progress_bars, write

if TYPE_CHECKING:
    from rocelab.jobs.job import JobSpec
    from rocelab.results.job import JobReport

WORDS = {
    "pattern": "allreduce allgather reducescatter alltoall alltoallv broadcast gather incast pairs "
    "permutation",
    "algorithm": "ring tree hierarchical",
    "placement": "contiguous topology-aware fragmented random",
    "strategy": "round-robin split",
    "source-port": "per-qp fixed flow-label rxe",
    "dcqcn": "off sigcomm15 hpcc-dcqcn hpcc-dcqcn-paper connectx4 simai",
    "ecn": "ect0 not-ect ce",
    "admission": "true false",
}
"""The words of shell completion, written out so that no other command loads the models."""

_RANKS, _SENDING, _OUTPUT = "What the ranks do", "How their NICs send", "Input and output"


def _completed(name: str) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [word for word in WORDS[name].split() if word.startswith(incomplete)]

    return complete


def _key(name: str, metavar: str, text: str, panel: str) -> OptionInfo:
    """An option that sets a key of the job; the job's model validates its text."""
    option: OptionInfo = typer.Option(
        f"--{name}",
        metavar=metavar,
        help=text,
        show_default=False,
        rich_help_panel=panel,
        autocompletion=_completed(name) if name in WORDS else None,
    )
    return option


def traffic(
    lab: OneRunningLab = None,
    pattern: Annotated[
        str | None,
        _key(
            "pattern",
            "NAME",
            "Collectives: allreduce, allgather, reducescatter, alltoall, alltoallv, broadcast, "
            "gather. Single sends: incast (all to rank 0), pairs, permutation.",
            _RANKS,
        ),
    ] = None,
    ranks: Annotated[
        str | None, _key("ranks", "N", "How many, each on a NIC of its own.", _RANKS)
    ] = None,
    size: Annotated[
        str | None,
        _key("size", "SIZE", "Bytes as nccl-tests counts them: 64MB, 1MiB.", _RANKS),
    ] = None,
    duration: Annotated[
        str | None,
        _key(
            "duration",
            "TIME",
            "Instead of a size: how long single sends last, in the modelled network's time: 20ms.",
            _RANKS,
        ),
    ] = None,
    starts: Annotated[
        str | None,
        _key(
            "starts",
            "TIME,...",
            "With --duration: senders in as many groups, each begins then.",
            _RANKS,
        ),
    ] = None,
    iterations: Annotated[
        str | None, _key("iterations", "N", "Measured repetitions, 5 by default.", _RANKS)
    ] = None,
    warmup: Annotated[
        str | None,
        _key("warmup", "N", "Repetitions before, not measured; 1 by default.", _RANKS),
    ] = None,
    compute: Annotated[
        str | None,
        _key("compute", "TIME", "Pause of every rank between iterations.", _RANKS),
    ] = None,
    algorithm: Annotated[
        str | None,
        _key("algorithm", "NAME", "Of an allreduce: ring, tree, hierarchical.", _RANKS),
    ] = None,
    channels: Annotated[
        str | None,
        _key("channels", "N", "Parts of the buffer that proceed independently.", _RANKS),
    ] = None,
    placement: Annotated[
        str | None,
        _key(
            "placement",
            "HOW",
            "contiguous (server by server), topology-aware (leaf by leaf), fragmented (zones and "
            "leaves in turn), random, or a list: srv1-1,srv2-1:2.",
            _RANKS,
        ),
    ] = None,
    seed: Annotated[
        str | None,
        _key("seed", "N", "Draws random placements and permutations, and ports.", _RANKS),
    ] = None,
    qps: Annotated[
        str | None,
        _key("qps", "N", "Queue pairs per pair of NICs: more of them, more paths.", _SENDING),
    ] = None,
    strategy: Annotated[
        str | None,
        _key(
            "strategy",
            "NAME",
            "Messages over queue pairs: round-robin, or split (each over all).",
            _SENDING,
        ),
    ] = None,
    message: Annotated[
        str | None, _key("message", "SIZE", "Longest message, 1MiB by default.", _SENDING)
    ] = None,
    mtu: Annotated[
        str | None,
        _key("mtu", "BYTES", "Payload per packet, 256 to 4096 (the default).", _SENDING),
    ] = None,
    source_port: Annotated[
        str | None,
        _key(
            "source-port",
            "NAME",
            "UDP source ports, which ECMP hashes: per-qp, fixed, flow-label, rxe.",
            _SENDING,
        ),
    ] = None,
    dcqcn: Annotated[
        str | None,
        _key(
            "dcqcn",
            "NAME",
            "Congestion control: off, or parameters as published: sigcomm15, hpcc-dcqcn, "
            "hpcc-dcqcn-paper, connectx4, simai. Off by default.",
            _SENDING,
        ),
    ] = None,
    ecn: Annotated[
        str | None,
        _key("ecn", "NAME", "ect0 (switches may mark), not-ect, ce (all marked).", _SENDING),
    ] = None,
    admission: Annotated[
        str | None,
        _key("admission", "BOOL", "true: nothing is sent before a clear-to-send.", _SENDING),
    ] = None,
    out_of_order: Annotated[
        bool,
        typer.Option(
            "--out-of-order",
            help="NICs take packets in any order: for labs that spray.",
            show_default=False,
            rich_help_panel=_SENDING,
        ),
    ] = False,
    job_file: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="FILE",
            help="A job as YAML, with every key, instead of the options above: a name, in "
            "traffic/ of this folder or that ships (allreduce), or a path.",
            show_default=False,
            autocompletion=complete_jobs,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            help="Where result.json goes.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    pcap: Annotated[
        Path | None,
        typer.Option(
            "--pcap",
            metavar="FILE",
            help="What the ranks' NICs send and receive, as pcapng. Takes CPU time.",
            show_default=False,
            rich_help_panel=_OUTPUT,
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Run a collective, or streams, over a lab that is up, as RoCE NICs would.

    Each rank has a NIC of its own, with queue pairs to the ranks it talks to. The lab stays up and
    as it was. Times and bandwidths are those of the modelled network, so they compare with a real
    cluster's; both clocks are in the JSON.

    rocelab traffic --pattern allreduce --ranks 8 --size 64MB --qps 4

    rocelab traffic --pattern incast --ranks 4 --duration 20ms --dcqcn sigcomm15

    Exits 0 when measured, 1 when a queue pair failed, 2 when the input is wrong, 3 when this
    machine could not carry the run: its figures are then not to be believed.
    """
    from rocelab.measure.run import planned_warning, run_job
    from rocelab.outputs import shown_if_unwritten

    options = {
        "pattern": pattern,
        "ranks": ranks,
        "size": size,
        "duration": duration,
        "starts": starts,
        "iterations": iterations,
        "warmup": warmup,
        "compute": compute,
        "algorithm": algorithm,
        "channels": channels,
        "placement": placement,
        "seed": seed,
        "qps": qps,
        "strategy": strategy,
        "message": message,
        "mtu": mtu,
        "source-port": source_port,
        "dcqcn": dcqcn,
        "ecn": ecn,
        "admission": admission,
        "out-of-order": "true" if out_of_order else None,
    }
    job = _job(job_file, options)
    need_root("sending in a lab")
    chosen = running_lab(lab)
    warned = planned_warning(chosen, job)
    if warned is not None:
        _warn(warned)
    found: list[JobReport] = []
    shown = shown_if_unwritten(found, lambda report: _show(report, json))
    with handed_over(folder), handed_over(pcap), shown, progress_bars() as progress:
        report = run_job(
            chosen,
            job,
            out=folder,
            overwrite=force,
            pcap=pcap,
            progress=progress,
            on_result=found.append,
        )
    _show(report, json)
    for text in report.warnings:
        if text != warned:
            _warn(text)
    for path in (folder and folder / "result.json", pcap):
        if path is not None:
            err().print(f"written: {path}", markup=False, soft_wrap=True)
    if report.problems:
        raise typer.Exit(3)
    if report.errors:
        raise typer.Exit(1)


def _warn(text: str) -> None:
    err().print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)


def _job(job_file: str | None, options: dict[str, str | None]) -> JobSpec:
    from rocelab.errors import InputError
    from rocelab.jobs.options import job_from_file, job_from_options
    from rocelab.spec.catalog import JOBS

    if job_file is None:
        return job_from_options(options)
    given = [f"--{name}" for name, text in options.items() if text is not None]
    if given:
        raise InputError(
            f"--job with {', '.join(given)}", hint="write it into the file, or leave --job out"
        )
    return job_from_file(file_of(job_file, JOBS))


def _show(report: JobReport, json: bool) -> None:
    from rocelab.documents import to_json
    from rocelab.report.job_terminal import print_report

    if json:
        write([to_json(report)])
        for text in (*report.problems, *report.errors):
            err().print(text, style="red", markup=False, soft_wrap=True)
    else:
        print_report(report, out())
