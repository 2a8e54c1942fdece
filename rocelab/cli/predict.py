"""`rocelab predict`: the load of every link by a traffic matrix, without sending a packet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.collection import uncollected
from rocelab.cli.arguments import (
    JsonOption,
    LabArgument,
    complete_jobs,
    file_of,
    running_or_planned,
)
from rocelab.cli.options import named_options, takes_options
from rocelab.cli.unprivileged import take_rights_for
from rocelab.labfile.schemes.scheme_spec import predictable_kinds
from rocelab.report.console import err, progress_bars, show_document, write
from rocelab.routes.models import Model

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric
    from rocelab.prediction.matrix import FlowRow

_NOT_OF_LOADS = ("starts", "warmup", "compute", "dcqcn", "congestion", "ecn", "out-of-order")
_WHAT_IF, _INPUT = "What if", "Input and output"


def _complete_model(incomplete: str) -> list[str]:
    return [name for name in Model if name.startswith(incomplete)]


def _complete_scheme(incomplete: str) -> list[str]:
    return [name for name in predictable_kinds() if name.startswith(incomplete)]


@takes_options(but=("transport", "congestion-control", "connections"))
@uncollected()
def predict(
    lab: LabArgument,
    flows: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Flows as CSV (source,destination,sport,...) or YAML, instead of a job: a name "
            "(in traffic/ of this folder, or shipped, such as elephants), or a path.",
            show_default=False,
            autocompletion=complete_jobs,
            rich_help_panel=_INPUT,
        ),
    ] = None,
    scheme: Annotated[
        str | None,
        typer.Option(
            metavar="SCHEME",
            help=f"Assume this scheme: {', '.join(predictable_kinds())}.",
            show_default=False,
            rich_help_panel=_WHAT_IF,
            autocompletion=_complete_scheme,
        ),
    ] = None,
    hashing: Annotated[
        str | None,
        typer.Option(
            metavar="SEED",
            help="Assume these hash seeds: per-node, per-tier, shared, or a number.",
            show_default=False,
            rich_help_panel=_WHAT_IF,
        ),
    ] = None,
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="kernel; or crc16 or crc32 with modulo, as switch ASICs choose (planned tables).",
            rich_help_panel=_WHAT_IF,
            autocompletion=_complete_model,
        ),
    ] = "kernel",
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Predict the links of the flows of a job or a file: loads, balance, polarization.

    Uses the running kernels' tables if the lab is up, else the planned ones. Sends no packet.

    rocelab predict zone-1-1 --pattern alltoall --ranks 16 --size 16MB --qps 4

    rocelab predict zone-small --flows elephants --model crc32
    """
    from rocelab.base.documents import to_json
    from rocelab.lab.lab import RunningLab
    from rocelab.lab.prediction import setting_of
    from rocelab.prediction.predictor import predict_document
    from rocelab.report.prediction import prediction_document

    chosen = running_or_planned(lab)
    is_up = isinstance(chosen, RunningLab)
    take_rights_for("reading the tables of a lab that is up", is_up=is_up)
    options = named_options(job)
    network = options.get("network")
    if flows is not None:
        options.pop("network", None)
    fabric, setting = setting_of(chosen.network(network), scheme, hashing, model)
    rows, notes = _rows(fabric, flows, options)
    with progress_bars() as progress:
        prediction = predict_document(fabric, rows, setting, progress, notes)
    if json:
        write([to_json(prediction)])
    else:
        show_document(prediction_document(prediction))
    for note in prediction.notes:
        err().print(f"note: {note}", style="yellow", markup=False, soft_wrap=True)


def _rows(
    fabric: Fabric, flows: str | None, options: dict[str, str]
) -> tuple[list[FlowRow], list[str]]:
    """The flows of a file or of a job, and notes of the job's keys that say nothing of loads."""
    from rocelab.base.errors import InputError
    from rocelab.jobs.jobplanning import plan_jobs
    from rocelab.jobs.options import job_from_options
    from rocelab.labfile.catalog import FLOWS
    from rocelab.prediction.matrix import rows_of_jobs
    from rocelab.prediction.prediction_spec import read_flows

    if flows is None:
        job = job_from_options(options)
        ignored = [f"--{key}" for key in _NOT_OF_LOADS if key in options]
        why = "has no effect here: it changes when packets are sent, not where"
        return rows_of_jobs(plan_jobs(fabric, [job])), [f"{key} {why}" for key in ignored]
    if options:
        raise InputError(
            f"--flows with {', '.join(f'--{name}' for name in options)}",
            hint="give a file of flows, or describe a job",
        )
    return read_flows(file_of(flows, FLOWS), fabric), []
