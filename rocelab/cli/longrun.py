"""`rocelab whatif` and `rocelab longrun`: the cost for jobs of one failure, and of a month of
failures."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.options import read_options
from rocelab.cli.arguments import ForceOption, JsonOption, LabArgument, ResultsOption
from rocelab.cli.options import named_options, takes_options
from rocelab.cli.simulate import (
    EpsOption,
    HashingOption,
    HostModelOption,
    JobFileOption,
    SchemeOption,
    asked_jobs,
    asked_spec,
    print_warnings,
    simulation_progress,
    write_results,
)
from rocelab.report.console import show_document, write
from rocelab.sim.events.longrun_options import LongRunOptions
from rocelab.sim.options import Options

if TYPE_CHECKING:
    from rocelab.base.outputs import Folder
    from rocelab.sim.events.event_spec import RatesSpec, RestartSpec, TimelineSpec


@takes_options(but=("duration", "starts", "warmup", "iterations"))
def whatif(
    lab: LabArgument,
    event: Annotated[
        str,
        typer.Argument(
            metavar="EVENT",
            help="'drain ctsw7 for 2h', 'lose 2 links of rack 40', 'fail rtsw1:ctsw2 for 10s'.",
            show_default=False,
        ),
    ],
    job_file: JobFileOption = None,
    scheme: SchemeOption = None,
    hashing: HashingOption = None,
    eps: EpsOption = None,
    host_model: HostModelOption = None,
    folder: ResultsOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Estimate the cost of a failure or maintenance for each job.

    Routing reacts after the time that the lab measured for that kind of failure. Needs no root.

    EVENT has a verb (fail, lose, blackhole, drain, crash, degrade) and a target: a link NODE:NODE,
    "2 links of rack 4", a switch, "plane N", "nic SERVER:NIC" or "port SERVER:NIC:PORT". It may end
    in "to 50%" (degrade), "for TIME" and "reaction TIME".

    rocelab whatif meta-32k "drain z1-ctsw7 for 2h" --job llama3-16k

    rocelab whatif zone-1-1125 "lose 2 links of rack 4" --pattern allreduce --ranks 16 --size 1GB
    """
    from rocelab.base.documents import to_json
    from rocelab.planning.fabric import basis_of
    from rocelab.report.basis import with_basis
    from rocelab.report.simulation.whatif import what_if_document
    from rocelab.sim.events.sentence import parse_event
    from rocelab.sim.reliability import event_cost

    spec = asked_spec(lab, scheme, hashing)
    jobs = asked_jobs(job_file, named_options(job))
    options = read_options(Options, {"eps": eps, "host_model": host_model})
    with _results(folder, force) as opened:
        with simulation_progress() as progress:
            cost = event_cost(spec, jobs, parse_event(event), options, progress)
        document = with_basis(what_if_document(cost), basis_of(spec), fails=True)
        if opened is not None:
            write_results(to_json(cost), document, opened)
    if json:
        write([to_json(cost)])
    else:
        show_document(document)
    print_warnings(cost.warnings)


@takes_options(but=("duration", "starts", "warmup", "iterations"))
def longrun(
    lab: LabArgument,
    run: LongRunOptions,
    job_file: JobFileOption = None,
    scheme: SchemeOption = None,
    hashing: HashingOption = None,
    eps: EpsOption = None,
    host_model: HostModelOption = None,
    folder: ResultsOption = None,
    force: ForceOption = False,
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Estimate the cost of failures over days or months: completion time, stalls, restarts.

    Goes through iterations: each takes the time that it takes in the network's state at its start.
    Needs no root.

    rocelab longrun zone-1-1125 --rates llama3 --work 30d --pattern allreduce --ranks 16 --size 1GB
    """
    from rocelab.base.documents import to_json
    from rocelab.planning.fabric import basis_of
    from rocelab.report.basis import with_basis
    from rocelab.report.simulation.whatif import outlook_document
    from rocelab.sim.reliability import long_run

    spec = asked_spec(lab, scheme, hashing)
    jobs = asked_jobs(job_file, named_options(job))
    options = read_options(Options, {"eps": eps, "host_model": host_model})
    failures = _failures(run)
    restart = _restart(failures, run.policy)
    work_s = _span_s("--work", run.work)
    with _results(folder, force) as opened:
        with simulation_progress() as progress, _problems_in(run.timeline):
            outlook = long_run(spec, jobs, failures, work_s, options, progress, restart)
        document = with_basis(outlook_document(outlook), basis_of(spec), fails=True)
        if opened is not None:
            write_results(to_json(outlook), document, opened)
    if json:
        write([to_json(outlook)])
    else:
        show_document(document)
    print_warnings(outlook.warnings)
    if any(outcome.jct_s is None for outcome in outlook.jobs):
        raise typer.Exit(1)


def _results(folder: Path | None, force: bool) -> AbstractContextManager[Folder | None]:
    from rocelab.base.outputs import results_folder

    return nullcontext() if folder is None else results_folder(folder, overwrite=force)


@contextmanager
def _problems_in(timeline: Path | None) -> Iterator[None]:
    """Problems of events that name nothing of the fabric are those of their file."""
    from rocelab.base.errors import SpecError

    try:
        yield
    except SpecError as error:
        if timeline is None:
            raise
        problems = [replace(problem, file=str(timeline)) for problem in error.problems]
        raise SpecError(problems) from None


def _failures(run: LongRunOptions) -> TimelineSpec | RatesSpec:
    from rocelab.base.errors import InputError
    from rocelab.labfile.load import read_model
    from rocelab.sim.events.event_spec import RatesSpec, TimelineSpec
    from rocelab.sim.events.rates import PRESETS

    if (run.timeline is None) == (run.rates is None):
        raise InputError(
            "expected --timeline or --rates, one of the two",
            hint="--rates llama3, or a file of events",
        )
    if run.timeline is not None:
        return read_model(run.timeline, TimelineSpec)
    if run.rates not in PRESETS:
        raise InputError(f"there are no rates {run.rates}", hint=f"take {' or '.join(PRESETS)}")
    _span_s("--repair", run.repair)
    return RatesSpec.model_validate({"preset": run.rates, "repair": run.repair, "seed": run.draw})


def _restart(failures: TimelineSpec | RatesSpec, policy: dict[str, str]) -> RestartSpec:
    from rocelab.base.errors import COMMAND_LINE
    from rocelab.labfile.load import validate
    from rocelab.labfile.source import YamlSource
    from rocelab.sim.events.event_spec import RatesSpec, RestartSpec
    from rocelab.sim.events.rates import PRESETS

    base = PRESETS[failures.preset] if isinstance(failures, RatesSpec) else failures
    asked = validate(YamlSource(COMMAND_LINE, dict(policy), {}), RestartSpec)
    return base.restart.model_copy(update={key: getattr(asked, key) for key in policy})


def _span_s(option: str, text: str) -> float:
    """The seconds of a time option."""
    from rocelab.base.errors import InputError
    from rocelab.base.options import of_option
    from rocelab.labfile.base import SECOND
    from rocelab.sim.events.event_spec import SPAN

    with of_option(option):
        span_ns = SPAN.parse(text)
    if span_ns <= 0:
        raise InputError(f"{option} is {text}", hint="give a time above 0")
    return span_ns / SECOND
