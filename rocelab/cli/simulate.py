"""`rocelab simulate`: jobs on a fabric of any size, as fluids, packet by packet or link by link."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.collection import uncollected
from rocelab.cli.arguments import (
    ForceOption,
    JsonOption,
    LabArgument,
    ResultsOption,
    complete_jobs,
    complete_schemes,
    file_of,
    lab_file,
)
from rocelab.cli.options import named_options, option_of, takes_options
from rocelab.labfile.schemes.scheme_spec import SCHEMES
from rocelab.report.console import err, progress_bars, show_document, write, write_json
from rocelab.results.engines import Engine
from rocelab.sim.options import Options

if TYPE_CHECKING:
    from rocelab.base.outputs import Folder
    from rocelab.base.progress import Progress, ProgressSink
    from rocelab.jobs.job_spec import SimulatedJob
    from rocelab.labfile.model import LabSpec
    from rocelab.report.document import Document
    from rocelab.results.simulation import SimulationReport
    from rocelab.sim.simulate import Simulation

_WHAT_IF, _INPUT = "What if", "Input and output"

JobFileOption = Annotated[
    str | None,
    typer.Option(
        "--job",
        metavar="FILE",
        help="Jobs as YAML: a name (in traffic/ of this folder, or shipped, such as llama3-16k), "
        "or a path.",
        show_default=False,
        autocompletion=complete_jobs,
        rich_help_panel=_INPUT,
    ),
]
SchemeOption = Annotated[
    str | None,
    typer.Option(
        "--scheme",
        metavar="SCHEME",
        help=f"Assume this scheme: {', '.join(SCHEMES)}.",
        show_default=False,
        rich_help_panel=_WHAT_IF,
        autocompletion=complete_schemes,
    ),
]
HashingOption = Annotated[
    str | None,
    typer.Option(
        "--hashing",
        metavar="SEED",
        help="Assume these hash seeds: per-node, per-tier, shared, or a number.",
        show_default=False,
        rich_help_panel=_WHAT_IF,
    ),
]
EpsOption = Annotated[float | None, option_of(Options, "eps")]
HostModelOption = Annotated[str | None, option_of(Options, "host_model")]


def _compile_only(asked: bool) -> None:
    if asked:
        from rocelab.sim.ahead import compile_missing

        with simulation_progress() as progress:
            for engine in (Engine.FLUID, Engine.LINKS):
                compile_missing(engine, progress)
        raise typer.Exit


@takes_options(but=("duration", "starts", "warmup"))
@uncollected()
def simulate(
    lab: LabArgument,
    job_file: JobFileOption = None,
    scheme: SchemeOption = None,
    hashing: HashingOption = None,
    *,
    options: Options,
    compile_only: Annotated[
        bool,
        typer.Option(
            "--compile-only",
            help="Compile the engines for later simulations, and end.",
            rich_help_panel=_INPUT,
            callback=_compile_only,
            is_eager=True,
        ),
    ] = False,
    sizes: Annotated[
        str | None,
        typer.Option(
            "--sizes",
            metavar="FROM:TO",
            help="Instead of --size: a table of nccl-tests of these sizes, each twice the one "
            "before, such as 1MiB:8GiB; a third number is another factor.",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    folder: ResultsOption = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--flows",
            metavar="FILE",
            help="Write when each queue pair's transfers began and ended, and their slowdown: "
            ".csv or .parquet.",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    chakra: Annotated[
        Path | None,
        typer.Option(
            "--chakra",
            metavar="DIR",
            help="Write what the job sends as Chakra execution traces, one for each rank.",
            show_default=False,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Estimate job time and bandwidth on fabrics of up to 100,000 GPUs.

    By default a fluid model: rates are max-min fair, packets and queues are not simulated. Needs
    no root.

    rocelab simulate meta-32k --pattern allreduce --ranks 32256 --size 1GB --qps 16 --strategy split

    rocelab simulate llama3-24k --job llama3-16k --out results/llama3

    rocelab simulate rail-superpod --pattern allreduce --ranks 64 --sizes 1MiB:8GiB --host-model
    dgx-h100
    """
    from rocelab.base.outputs import results_folder
    from rocelab.sim.flowtable import flow_file, write_flows
    from rocelab.sim.networks import simulations

    table = None if file is None else flow_file(file, overwrite=force)
    spec = asked_spec(lab, scheme, hashing)
    if sizes is not None:
        others = {"--job": job_file, "--flows": file, "--chakra": chakra, "--size": job["size"]}
        _check_alone("--sizes", others)
        _simulate_sizes(spec, named_options(job), sizes, options, folder, force=force, json=json)
        return
    jobs = asked_jobs(job_file, named_options(job))
    with nullcontext() if folder is None else results_folder(folder, overwrite=force) as opened:
        with simulation_progress() as progress:
            made = simulations(spec, jobs, options, progress)
            if chakra is not None:
                _export(list(made.values()), chakra, progress)
            outcomes = [(simulation, simulation.run()) for simulation in made.values()]
            reports = [simulation.report(outcome) for simulation, outcome in outcomes]
        named = dict(zip(made, reports, strict=True))
        if opened is not None:
            _write_all(named, opened)
        if table is not None:
            write_flows(outcomes, table)
    _show_all(named, json=json)
    print_warnings(text for report in reports for text in report.warnings)
    if any(None in job.iterations_ns for report in reports for job in report.jobs):
        raise typer.Exit(1)


def _show_all(reports: Mapping[str | None, SimulationReport], *, json: bool) -> None:
    """Print the report of each network; as JSON, of several by their names."""
    from rocelab.base.documents import to_json
    from rocelab.report.simulation.document import simulation_document

    if json and len(reports) > 1:
        parts = (f'"{name}": {to_json(report).strip()}' for name, report in reports.items())
        write(["{\n", ",\n".join(parts), "\n}\n"])
        return
    for name, report in reports.items():
        if json:
            write([to_json(report)])
            continue
        if name is not None:
            err().print(f"network {name}", markup=False)
        show_document(simulation_document(report))


def _write_all(reports: Mapping[str | None, SimulationReport], folder: Folder) -> None:
    """Write the results of each network, of several in files with their names."""
    from rocelab.base.documents import to_json
    from rocelab.base.outputs import REPORT, RESULT
    from rocelab.report.renderers.page import html
    from rocelab.report.simulation.document import simulation_document

    files = {}
    for name, report in reports.items():
        of = "" if name is None else f"{name}-"
        files[f"{of}{RESULT}"] = to_json(report)
        files[f"{of}{REPORT}"] = html(simulation_document(report))
    folder.replace_all(files)
    err().print(f"written: {folder.path}/{', '.join(files)}", markup=False, soft_wrap=True)


def _check_alone(name: str, others: Mapping[str, object]) -> None:
    """Raise InputError for other options than one that excludes them."""
    from rocelab.base.errors import InputError

    for other, value in others.items():
        if value is not None:
            raise InputError(f"{name} with {other}", hint="leave one of both out")


def _simulate_sizes(
    spec: LabSpec,
    named: dict[str, str],
    text: str,
    options: Options,
    folder: Path | None,
    *,
    force: bool,
    json: bool,
) -> None:
    """Simulate each of some sizes of a collective, and show their table."""
    from dataclasses import asdict
    from json import dumps

    from rocelab.base.outputs import results_folder
    from rocelab.report.simulation.busbw import busbw_document
    from rocelab.sim.busbw import size_table, sizes_of

    chosen = sizes_of(text)
    with nullcontext() if folder is None else results_folder(folder, overwrite=force) as opened:
        with simulation_progress() as progress:
            table = size_table(
                spec,
                lambda size: asked_jobs(None, {**named, "size": f"{size}B"})[0],
                chosen,
                options,
                progress,
            )
        document = busbw_document(table)
        if opened is not None:
            write_results(dumps(asdict(table), indent=1) + "\n", document, opened)
    if json:
        write_json(asdict(table))
    else:
        show_document(document)
    print_warnings(table.warnings)


def print_warnings(warnings: Iterable[str]) -> None:
    """Print warnings on standard error."""
    for text in warnings:
        err().print(f"warning: {text}", style="yellow", markup=False, soft_wrap=True)


@contextmanager
def simulation_progress() -> Iterator[ProgressSink]:
    """Bars, and lines where an engine is used for the first time, when its compilation begins and
    ends."""
    from time import perf_counter

    from rocelab.sim.ahead import STAGES

    names = {stage: name for name, stage in STAGES.items()}
    begun: dict[str, float] = {}

    with progress_bars() as show:

        def show_and_say(step: Progress) -> None:
            name = names.get(step.stage)
            if name is not None and name not in begun:
                begun[name] = perf_counter()
                err().print(f"first use: compiling the {name}, once", highlight=False)
            show(step)
            if name is not None and step.done == step.total:
                seconds = perf_counter() - begun[name]
                err().print(f"compiled the {name} in {seconds:.0f} s", highlight=False)

        yield show_and_say


def asked_spec(lab: str, scheme: str | None, hashing: str | None) -> LabSpec:
    """The spec of a lab, with what was observed of it if it is up, and another scheme or hashing on
    request. Raises SpecError."""
    from rocelab.lab.lab import as_observed
    from rocelab.labfile.load import load_spec
    from rocelab.prediction.prediction_spec import read_asked

    asked = read_asked(scheme, hashing)
    changed = {"scheme": asked.scheme, "hashing": asked.hashing}
    update = {key: value for key, value in changed.items() if value is not None}
    return as_observed(load_spec(lab_file(lab))).model_copy(update=update)


def asked_jobs(job_file: str | None, options: dict[str, str]) -> tuple[SimulatedJob, ...]:
    """The jobs of a file, or the collective that a command's options describe. Raises SpecError."""
    from rocelab.base.errors import InputError
    from rocelab.jobs.job_spec import collective_job, load_jobs
    from rocelab.jobs.options import job_from_options
    from rocelab.labfile.catalog import JOBS

    if job_file is None:
        spec = job_from_options(options)
        # A lab repeats iterations to measure them; here all are alike, so the default is one.
        iterations = spec.iterations if "iterations" in options else 1
        return (collective_job(spec).model_copy(update={"iterations": iterations}),)
    if options:
        raise InputError(
            f"--job with {', '.join(f'--{name}' for name in options)}",
            hint="write it into the file, or leave --job out",
        )
    return load_jobs(file_of(job_file, JOBS))


def _export(simulations: Sequence[Simulation], folder: Path, progress: ProgressSink) -> None:
    from rocelab.base.errors import InputError
    from rocelab.sim.traces.export import write_trace

    workloads = [workload for simulation in simulations for workload in simulation.workloads]
    if len(workloads) > 1:
        raise InputError(
            f"--chakra with {len(workloads)} jobs", hint="a trace holds one job: give one"
        )
    write_trace(workloads[0], folder, progress=progress)


def write_results(result: str, document: Document, folder: Folder) -> None:
    """Write `result`, JSON, and its page into a folder, and say so."""
    from rocelab.base.outputs import REPORT, RESULT
    from rocelab.report.renderers.page import html

    folder.replace_all({RESULT: result, REPORT: html(document)})
    err().print(f"written: {folder.path}/result.json, report.html", markup=False, soft_wrap=True)
