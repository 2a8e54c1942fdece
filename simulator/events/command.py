"""`rocelab whatif`: what a failure or maintenance would cost the jobs that run on a fabric."""

from __future__ import annotations

from typing import Annotated

import typer

from labs.cli.arguments import JsonOption, LabArgument
from labs.cli.console import out, progress_bars, write
from scripts.predict.joboptions import given, takes_job_options
from simulator.command import (
    EpsOption,
    HashingOption,
    JobFileOption,
    SchemeOption,
    asked_jobs,
    asked_spec,
)


@takes_job_options(but=("duration", "starts", "warmup", "iterations"))
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
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Say which jobs would pay how much for a failure or maintenance.

    Routing reacts after what the lab measured for that kind of failure. docs/whatif.md says what
    EVENT can be. Needs no root.

    rocelab whatif meta-32k "drain z1-ctsw7 for 2h" --job llama3-16k

    rocelab whatif zone-1-1125 "lose 2 links of rack 4" --pattern allreduce --ranks 16 --size 1GB
    """
    from report.simulation.whatif import print_what_if
    from scripts.documents import to_json
    from simulator.events.sentence import parse_event
    from simulator.simulate import Options, event_cost

    spec = asked_spec(lab, scheme, hashing)
    jobs = asked_jobs(job_file, given(job))
    with progress_bars() as progress:
        found = event_cost(spec, jobs, parse_event(event), Options(eps=eps), progress)
    if json:
        write([to_json(found)])
    else:
        print_what_if(found, out())
