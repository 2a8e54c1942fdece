"""`rocelab reference`: compares nccl-tests' measurements on a cluster with a simulation."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rocelab.cli.arguments import JsonOption, LabArgument
from rocelab.cli.joboptions import named_options, takes_job_options
from rocelab.cli.simulate import HashingOption, SchemeOption, asked_jobs, asked_spec, note_compiling
from rocelab.report.console import out, progress_bars, table, write_json


@takes_job_options(but=("duration", "starts", "warmup", "iterations", "size", "compute"))
def reference(
    lab: LabArgument,
    measured: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The output of all_reduce_perf or another of nccl-tests, as text or CSV.",
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
    leaves out. Needs no root.

    rocelab reference rail-superpod all_reduce.txt --pattern allreduce --ranks 8
    """
    from rocelab.errors import InputError
    from rocelab.files import read_input
    from rocelab.sim.simulate import simulate
    from rocelab.sim.traces.nccl_tests import read_nccl_tests
    from rocelab.sim.traces.reference import compare, fit_alpha_beta
    from rocelab.units import SIZE, format_duration

    spec = asked_spec(lab, scheme, hashing)
    try:
        rows = read_nccl_tests(read_input(measured).decode(), str(measured))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{measured}: {error}", hint="give the text that it printed") from None
    fit = fit_alpha_beta(
        [row.size_bytes for row in rows], [row.timing.time_us * 1000 for row in rows]
    )
    note_compiling()
    with progress_bars() as progress:

        def time_ns(size_bytes: int) -> float:
            jobs = asked_jobs(None, {**named_options(job), "size": f"{size_bytes}B"})
            report = simulate(spec, jobs, progress=progress)
            return report.jobs[0].headline("iteration_time").modelled.median

        found = compare(rows, time_ns)
    if json:
        write_json({"sizes": [asdict(row) for row in found], "fit": asdict(fit)})
        return
    shown = table("busbw, GB/s", ("size", "measured", "simulated", "simulated / measured"))
    for row in found:
        shown.add_row(
            SIZE.written(row.size_bytes),
            f"{row.measured_busbw_gbs:.2f}",
            f"{row.simulated_busbw_gbs:.2f}",
            f"{row.ratio:.2f}",
        )
    out().print(shown)
    out().print(
        f"measured: {format_duration(fit.latency_ns)} + size / {fit.bandwidth_gbs:.1f} GB/s, "
        f"{fit.worst:.1%} off at most",
        highlight=False,
    )
