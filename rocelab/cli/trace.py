"""`rocelab reference`: compares nccl-tests' measurements on a cluster with a simulation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit, bandwidth, duration, share
from rocelab.cli.arguments import JsonOption, LabArgument
from rocelab.cli.options import named_options, takes_options
from rocelab.cli.simulate import (
    HashingOption,
    SchemeOption,
    asked_jobs,
    asked_spec,
    simulation_progress,
)
from rocelab.report.console import err, show_blocks, write_json
from rocelab.report.document import Column, Note, Table, columns

if TYPE_CHECKING:
    from rocelab.jobs.collectives import Pattern


@takes_options(but=("duration", "starts", "warmup", "iterations", "size", "compute"))
def reference(
    lab: LabArgument,
    measured: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The output of a program of nccl-tests or rccl-tests, as text, CSV or JSON.",
            show_default=False,
        ),
    ],
    scheme: SchemeOption = None,
    hashing: HashingOption = None,
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Compare a table of nccl-tests with a simulation of each of its sizes.

    Also fits latency + size / bandwidth to the measured times; the latency is what a fluid model
    leaves out. --pattern and --ranks are needed where the file does not say them. Needs no root.

    rocelab reference rail-superpod all_reduce.txt --pattern allreduce --ranks 8
    """
    from rocelab.base.documents import read_text
    from rocelab.sim.simulate import simulate
    from rocelab.sim.traces.nccl_tests import read_nccl_tests
    from rocelab.sim.traces.reference import compare, fit_alpha_beta

    spec = asked_spec(lab, scheme, hashing)
    options = named_options(job)
    pattern, ranks = _asked(options)
    text = read_text(measured, hint="give the text that nccl-tests printed")
    test = read_nccl_tests(text, str(measured), pattern=pattern, ranks=ranks)
    named = {"pattern": test.pattern.value, "ranks": str(test.ranks)}
    options = {**options, **named}
    fit = fit_alpha_beta(
        [row.size_bytes for row in test.rows], [row.timing.time_us * 1000 for row in test.rows]
    )
    with simulation_progress() as progress:

        def time_ns(size_bytes: int) -> float:
            jobs = asked_jobs(None, {**options, "size": f"{size_bytes}B"})
            report = simulate(spec, jobs, progress=progress)
            return report.jobs[0].headline("iteration_time").modelled.median

        comparisons = compare(test, time_ns)
    if json:
        of = {"pattern": test.pattern.value, "ranks": test.ranks, "notes": test.notes}
        write_json({**of, "sizes": [asdict(row) for row in comparisons], "fit": asdict(fit)})
        return
    for note in test.notes:
        err().print(f"note: {note}", markup=False, soft_wrap=True)
    table = Table(
        f"{test.pattern} of {test.ranks} ranks: busbw",
        (
            Column("size", Unit.BYTES),
            *columns(Unit.GB_PER_S, "measured", "simulated"),
            Column("simulated / measured", Unit.RATIO),
        ),
        tuple(
            (row.size_bytes, row.measured_busbw_gbs, row.simulated_busbw_gbs, row.ratio)
            for row in comparisons
        ),
    )
    text = (
        f"measured: {duration(fit.latency_ns)} + size / {bandwidth(fit.bandwidth_gbs)}, "
        f"{share(fit.worst)} off at most"
    )
    show_blocks(table, Note(text))


def _asked(options: dict[str, str]) -> tuple[Pattern | None, int | None]:
    """The collective and the ranks that the options name. Raises SpecError if they are wrong."""
    from rocelab.jobs.collectives import Pattern
    from rocelab.jobs.options import job_from_options

    if not {"pattern", "ranks"} & set(options):
        return None, None
    asked = {name: text for name, text in options.items() if name in ("pattern", "ranks")}
    job = job_from_options(
        {"pattern": Pattern.ALLREDUCE.value, "ranks": "2", **asked, "size": "1MB"}
    )
    return (job.pattern if "pattern" in asked else None), (job.ranks if "ranks" in asked else None)
