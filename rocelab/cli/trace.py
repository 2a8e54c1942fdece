"""`rocelab reference`: compares nccl-tests' measurements on a cluster with a simulation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit, bandwidth, duration, rate, share
from rocelab.base.wording import counted, printable
from rocelab.cli.arguments import ForceOption, JsonOption, LabArgument
from rocelab.cli.options import named_options, takes_options
from rocelab.cli.simulate import (
    HashingOption,
    HostModelOption,
    SchemeOption,
    asked_jobs,
    asked_spec,
    simulation_progress,
)
from rocelab.hosts.model import TIMELESS
from rocelab.report.console import err, show_blocks, write_json
from rocelab.report.document import Block, Column, Note, Table, columns
from rocelab.sim.options import Options

if TYPE_CHECKING:
    from rocelab.base.progress import ProgressSink
    from rocelab.hosts.host_spec import HostModelSpec
    from rocelab.jobs.collectives import Pattern
    from rocelab.labfile.model import LabSpec
    from rocelab.sim.traces.hostfit import HostFit
    from rocelab.sim.traces.nccl_tests import NcclTest


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
    host_model: HostModelOption = None,
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            metavar="FILE",
            help="Fit the host model to the measured times, and write it, for --host-model.",
            show_default=False,
        ),
    ] = None,
    force: ForceOption = False,
    json: JsonOption = False,
    **job: str | bool | None,
) -> None:
    """Compare a table of nccl-tests with a simulation of each of its sizes.

    Also fits latency + size / bandwidth to the measured times. --pattern and --ranks are needed
    where the file does not say them. Needs no root.

    With --save, launch and step latencies and the rate of NICs, or of the fabric between GPUs, are
    fitted until simulations meet the times; every second size is also predicted by a fit to the
    others.

    rocelab reference rail-superpod all_reduce.txt --pattern allreduce --ranks 8

    rocelab reference rail-superpod all_reduce.txt --host-model dgx-h100 --save host.yaml
    """
    from rocelab.base.documents import read_text
    from rocelab.base.outputs import output_file
    from rocelab.sim.traces.nccl_tests import read_nccl_tests
    from rocelab.sim.traces.reference import compare, fit_alpha_beta

    spec = asked_spec(lab, scheme, hashing)
    file = None if save is None else output_file(save, overwrite=force)
    base = _base(spec, host_model, fits=save is not None)
    options = named_options(job)
    pattern, ranks = _asked(options)
    text = read_text(measured, hint="give the text that nccl-tests printed")
    test = read_nccl_tests(text, str(measured), pattern=pattern, ranks=ranks)
    test, notes = _divisible(test)
    named = {"pattern": test.pattern.value, "ranks": str(test.ranks)}
    options = {**options, **named}
    line = fit_alpha_beta(
        [row.size_bytes for row in test.rows], [row.timing.time_us * 1000 for row in test.rows]
    )
    fit = None
    with simulation_progress() as progress:
        simulated = partial(_time_ns, spec, options, progress)
        if base is not None and file is not None:
            fit = _fitted(test, spec, base, simulated, printable(measured.name))
            file.write(_written(fit, measured.name))
        server = base if fit is None else fit.server
        comparisons = compare(test, lambda size: simulated(server, size, True))
    if json:
        of = {"pattern": test.pattern.value, "ranks": test.ranks, "notes": notes}
        hosts = TIMELESS if server is None else server.model.words
        write_json(
            {
                **of,
                "hosts": hosts,
                "sizes": [asdict(row) for row in comparisons],
                "fit": asdict(line),
                "host_model": None if fit is None else _fit_json(fit),
            }
        )
        return
    for note in notes:
        err().print(f"note: {note}", markup=False, soft_wrap=True)
    words = TIMELESS if server is None else server.model.words
    table = Table(
        f"{test.pattern} of {test.ranks} ranks, {words}: busbw",
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
        f"measured: {duration(line.latency_ns)} + size / {bandwidth(line.bandwidth_gbs)}, "
        f"{share(line.worst)} off at most"
    )
    show_blocks(table, Note(text), *([] if fit is None else _fit_blocks(fit)))
    if fit is not None:
        err().print(f"written: {save}", markup=False, soft_wrap=True)


def _base(spec: LabSpec, named: str | None, *, fits: bool) -> HostModelSpec | None:
    """The type of server that is asked for, or the lab's. Raises InputError if one is to be fitted
    and there is none."""
    from rocelab.base.errors import InputError
    from rocelab.base.options import of_option
    from rocelab.labfile.servers import server_named

    if named is not None:
        with of_option("--host-model"):
            return server_named(named)
    if spec.host_model is None and fits:
        raise InputError(
            "--save fits a host model, and none is named",
            hint="name the type of server to begin with, such as --host-model dgx-h100: its GPUs, "
            "NICs and kind of fabric stay",
        )
    return spec.host_model


def _divisible(test: NcclTest) -> tuple[NcclTest, tuple[str, ...]]:
    """The test without sizes of less than a byte for each rank, and what to note."""
    rows = tuple(row for row in test.rows if row.size_bytes >= test.ranks)
    left = len(test.rows) - len(rows)
    if not left or not rows:
        return test, test.notes
    note = f"{counted(left, 'size')} of less than a byte a rank left out"
    return replace(test, rows=rows), (*test.notes, note)


def _time_ns(
    spec: LabSpec,
    options: dict[str, str],
    progress: ProgressSink,
    server: HostModelSpec | None,
    size_bytes: int,
    has_links: bool,
) -> float:
    """The simulated time of a size. has_links: whether links and switches take time."""
    from rocelab.sim.simulate import simulate

    jobs = asked_jobs(None, {**options, "size": f"{size_bytes}B"})
    chosen = Options(
        host_model=None if server is None else server.model,
        hop_latency_ns=None if has_links else 0,
    )
    report = simulate(spec, jobs, chosen, progress)
    return report.jobs[0].headline("iteration_time").modelled.median


def _fitted(
    test: NcclTest,
    spec: LabSpec,
    base: HostModelSpec,
    simulated: Callable[[HostModelSpec, int, bool], float],
    source: str,
) -> HostFit:
    from rocelab.sim.traces.hostfit import fit_hosts

    times: dict[int, list[float]] = {}
    for row in test.rows:
        times.setdefault(row.size_bytes, []).append(row.timing.time_us * 1000)
    measured = {size: median(values) for size, values in times.items()}
    line_bps = float(spec.links.server_rate)
    return fit_hosts(
        base, measured, line_bps, simulated, f"{source}, {test.pattern} of {test.ranks}"
    )


def _written(fit: HostFit, source: str) -> str:
    from rocelab.labfile.source import written

    data = fit.server.model_dump(mode="json", exclude_none=True)
    head = (f"Fitted to {printable(source)} by `rocelab reference --save`.", *fit.undetermined)
    comments = "".join(f"# {sentence}\n" for sentence in head)
    return f"{comments}{written(data, width=100)}"


def _fit_json(fit: HostFit) -> dict[str, object]:
    return {
        "server": fit.server.model_dump(mode="json", exclude_none=True),
        "undetermined": fit.undetermined,
        "median_held_out": fit.median_held_out,
        "sizes": [
            {**asdict(size), "error": size.error, "held_out_error": size.held_out_error}
            for size in fit.sizes
        ],
    }


def _fit_blocks(fit: HostFit) -> tuple[Block, ...]:
    server = fit.server
    figures = [f"launch {duration(server.costs.launch)}", f"step {duration(server.costs.step)}"]
    if server.fabric is not None:
        figures.append(f"between GPUs {duration(server.fabric.latency)}")
        figures.append(f"at {bandwidth(server.fabric.bandwidth / 1e9)}")
    figures.append(f"NIC {rate(server.nic.cap or 0)}")
    half = fit.median_held_out
    predicted = (
        ""
        if half is None
        else (f"; each second size predicted by the others: {share(half)} off in the median")
    )
    return (
        Table(
            f"Fitted host model {server.name}: time",
            (
                Column("size", Unit.BYTES),
                *columns(Unit.NS, "measured", "fitted"),
                *columns(Unit.SHARE, "off", "off, predicted by other sizes"),
            ),
            tuple(
                (size.size_bytes, size.measured_ns, size.fitted_ns, size.error, size.held_out_error)
                for size in fit.sizes
            ),
        ),
        Note(f"{', '.join(figures)}{predicted}"),
        *map(Note, fit.undetermined),
    )


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
