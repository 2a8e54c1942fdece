"""`rocelab requests`: what a trace of requests asks of models and networks."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rocelab.cli.arguments import JsonOption
from rocelab.report.console import progress_bars, show_blocks, write_json


def requests(
    trace: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A trace of requests: CSV, or JSON with an object in each line, also with gzip.",
            show_default=False,
        ),
    ],
    first: Annotated[
        int | None,
        typer.Option(
            "--first", min=1, metavar="N", help="Its first N requests.", show_default=False
        ),
    ] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="COLUMN[:UNIT]",
            help="The column of arrivals, and the unit of its numbers: s, ms, us or ns.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        str | None,
        typer.Option(
            "--prompt", metavar="COLUMN", help="The column of prompts' tokens.", show_default=False
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output", metavar="COLUMN", help="The column of answers' tokens.", show_default=False
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Look at a trace of requests to a served model: rates, lengths, and what its caches weigh.

    Columns are recognised by their usual names. A job `serving` takes the same file.

    rocelab requests AzureLLMInferenceTrace_code.csv

    rocelab requests log.csv --time started:ms --prompt in --output out
    """
    from rocelab.base.errors import COMMAND_LINE, InputError
    from rocelab.jobs.models import MODELS
    from rocelab.jobs.serving.request_columns import TimeUnit
    from rocelab.jobs.serving.request_spec import RequestsSpec
    from rocelab.jobs.serving.summary import request_summary
    from rocelab.labfile.load import validate
    from rocelab.labfile.source import Data, YamlSource
    from rocelab.report.requests import request_blocks

    column, mark, unit = (time or "").rpartition(":")
    if not mark:
        column, unit = unit, ""
    if unit and unit not in list(TimeUnit):
        raise InputError(
            f"--time: expected the unit s, ms, us or ns, got {unit!r}",
            hint="a column whose name has a colon is given with its unit: NAME:s",
        )
    columns = {"time": column or None, "prompt": prompt, "output": output}
    asked: dict[str, Data] = {
        "trace": str(trace),
        "columns": {key: name for key, name in columns.items() if name is not None},
        "time_unit": unit or None,
        "first": first,
    }
    options: dict[str, Data] = {key: value for key, value in asked.items() if value is not None}
    spec = validate(YamlSource(COMMAND_LINE, options, {}), RequestsSpec)
    with progress_bars() as progress:
        spec.read(progress)
    summary = request_summary(spec.listed(), MODELS)
    if json:
        write_json(asdict(summary))
        return
    show_blocks(*request_blocks(summary))
