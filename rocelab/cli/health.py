"""`rocelab health`: the health of a running lab, live or over a period."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from datetime import datetime
from json import dumps as json_dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.interruption import undone
from rocelab.base.quantities import Unit
from rocelab.base.wording import counted
from rocelab.cli.arguments import JsonOption, OneRunningLab, complete_network, running_lab
from rocelab.linux.rights import need_root
from rocelab.report.console import err, out, say, show_blocks, write
from rocelab.report.document import Column, Table, columns
from rocelab.report.figures import network_totals
from rocelab.report.renderers.terminal import rich_table
from rocelab.results.health import placed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rocelab.lab.lab import RunningLab
    from rocelab.observe.health.health_spec import HealthSpec
    from rocelab.observe.health.monitor import OnSample, Snapshot
    from rocelab.results.health import HealthReport

NS_PER_S = 10**9
MOST_ROWS = 24


def health(
    lab: OneRunningLab = None,
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="NAME",
            help="Of a lab with several networks, the one to watch: all by default.",
            autocompletion=complete_network,
            show_default=False,
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="One sample, then end.")] = False,
    duration: Annotated[
        str | None,
        typer.Option("--for", metavar="TIME", help="End after 30s, 5m ...", show_default=False),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option("--interval", metavar="TIME", help="Between two samples.", show_default="1s"),
    ] = None,
    objectives: Annotated[
        Path | None,
        typer.Option(
            "--objectives", metavar="FILE", help="A YAML file of objectives.", show_default=False
        ),
    ] = None,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus",
            metavar="FILE",
            help="Write each sample to a file for node_exporter's textfile collector.",
            show_default=False,
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="ADDRESS",
            help="Serve Prometheus on a loopback address, such as 127.0.0.1:9464.",
            show_default=False,
        ),
    ] = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence",
            metavar="DIR",
            help="Collect evidence there at the first breach of each SLI.",
            show_default=False,
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Sample the health of a running lab until Ctrl-C, --for or --once. Exits 1 when --for or
    --once saw an objective missed, could not read all of the lab or found a process that does not
    work, 130 after Ctrl-C. With --json
    each sample is a line, and the report the last."""
    from rocelab.base.errors import InputError
    from rocelab.observe.environment import environment_of

    need_root("reading counters in nodes")
    if once and duration is not None:
        raise InputError("--once and --for exclude each other", hint="give one of them")
    spec = _spec(objectives, interval)
    # A monitor samples at its end: in less than an interval that is the only sample.
    limit_s = 0.99 * spec.interval / NS_PER_S if once else _seconds(duration)
    watched = running_lab(lab)
    watched = watched if network is None else watched.network(network)
    environment = asdict(environment_of(watched)) if json else None
    report = _watch(watched, spec, limit_s, prometheus, listen, evidence, json)
    if json:
        write([json_dumps({"report": asdict(report), "environment": environment}), "\n"])
    else:
        print_report(report)
    if limit_s is not None and not report.is_healthy:
        raise typer.Exit(1)


def _spec(objectives: Path | None, interval: str | None) -> HealthSpec:
    from pydantic import ValidationError

    from rocelab.base.errors import InputError
    from rocelab.labfile.load import validate
    from rocelab.labfile.source import read_source
    from rocelab.observe.health.health_spec import HealthSpec

    spec = HealthSpec() if objectives is None else validate(read_source(objectives), HealthSpec)
    if interval is None:
        return spec
    try:
        changed = HealthSpec.model_validate({"interval": interval})
    except ValidationError:
        raise InputError(
            f"expected an interval from 100ms to 60s, got {interval!r}", hint="for example 1s"
        ) from None
    return spec.model_copy(update={"interval": changed.interval})


def _seconds(text: str | None) -> float | None:
    from rocelab.base.errors import InputError
    from rocelab.base.units import parse_duration_ns
    from rocelab.base.wording import RefusedError

    if text is None:
        return None
    try:
        return parse_duration_ns(text) / NS_PER_S
    except RefusedError as error:
        raise InputError(error.message, hint=error.hint) from None


def _watch(
    lab: RunningLab,
    spec: HealthSpec,
    limit_s: float | None,
    prometheus: Path | None,
    listen: str | None,
    evidence: Path | None,
    json: bool,
) -> HealthReport:
    from rocelab.observe.health.monitor import HealthMonitor

    with ExitStack() as stack:
        sinks = [stack.enter_context(_json_lines() if json else _live(lab))]
        if prometheus is not None or listen is not None:
            from rocelab.observe.health.prometheus import Exporter

            sinks.append(stack.enter_context(Exporter(prometheus, listen)).take)

        def on_sample(snapshot: Snapshot) -> None:
            for sink in sinks:
                sink(snapshot)

        # Ctrl-C ends the watching, not the command: the report is still printed.
        with (
            HealthMonitor(lab, spec, evidence=evidence, asks=True, on_sample=on_sample) as monitor,
            suppress(KeyboardInterrupt),
        ):
            monitor.wait(limit_s)
    undone(f"lab {lab.name} has nothing to clean up")
    if monitor.failure is not None:
        raise monitor.failure
    return monitor.report


@contextmanager
def _json_lines() -> Iterator[OnSample]:
    def show(snapshot: Snapshot) -> None:
        write([json_dumps({"sample": sample_document(snapshot)}), "\n"])

    yield show


def sample_document(snapshot: Snapshot) -> dict[str, object]:
    """A sample for `--json`: values that are not zero, and those that miss objectives."""
    sample = snapshot.sample
    breaches = snapshot.breaches
    networks = {
        where: snapshot.places.networks_of(sli, where)
        for sli, values in sample.values.items()
        for where in values
        if snapshot.places.networks
    }
    return {
        "time_ns": sample.time_ns,
        "span_ns": sample.span_ns,
        "values": {sli.value: dict(values) for sli, values in sample.values.items() if values},
        "breaches": {sli.value: places for sli, places in breaches.items()},
        "gaps": list(sample.gaps),
        **({"networks": networks} if networks else {}),
    }


@contextmanager
def _live(lab: RunningLab) -> Iterator[OnSample]:
    """A view that is redrawn with every sample; nothing if stdout is no terminal."""
    from rich.live import Live

    console = out()
    if not console.is_terminal:
        yield lambda snapshot: None
        return
    with Live(f"lab {lab.name}: waiting for the first sample", console=console) as live:
        yield lambda snapshot: live.update(view(snapshot))


def view(snapshot: Snapshot) -> RenderableType:
    """The places with problems, worst SLIs first, under a summary line."""
    from rich.console import Group
    from rich.text import Text

    sample, reading = snapshot.sample, snapshot.reading
    rows: dict[str, list[str]] = {}
    for sli, missed in snapshot.breaches.items():
        for where, value in missed.items():
            place = placed(where, snapshot.places.networks_of(sli, where))
            rows.setdefault(place, []).append(f"{sli.value} {value:g}")
    at = datetime.fromtimestamp(reading.time_ns / NS_PER_S).astimezone()
    packets = sum(port.tx_packets for port in reading.ports.values())
    verb = "is" if len(rows) == 1 else "are"
    state = f"{counted(len(rows), 'place')} {verb} not fine" if rows else "all fine"
    style = "red" if rows else "green"
    if sample.gaps:
        state = f"{state} of what could be read"
        style = "red" if rows else "yellow"
    summary = Text(
        f"{at:%H:%M:%S}  lab {snapshot.lab.name}: {state}, sample {snapshot.samples}, "
        f"{len(reading.endpoints)} endpoints, {packets:,} packets sent so far, "
        f"read in {snapshot.read_s * 1e3:.0f} ms",
        style=style,
    )
    places = [(where, ", ".join(what)) for where, what in rows.items()]
    head = columns(Unit.TEXT, "where", "what")
    lines = rich_table(Table("", head, tuple(places), most=MOST_ROWS))
    notes = [Text(gap, style="yellow") for gap in sample.gaps[:MOST_ROWS]]
    return Group(summary, *([lines] if rows else []), *notes)


def print_report(report: HealthReport) -> None:
    """Print the report as a table: every SLI with its worst value, and the totals of networks."""
    seconds = (report.ended_ns - report.started_ns) / NS_PER_S
    title = f"lab {report.lab}: {seconds:.1f} s in {report.sampling}"
    head = (
        Column("SLI"),
        *columns(Unit.FIGURE, "worst", "objective", "missed in", "where"),
    )
    rows = tuple(
        (
            sli.sli,
            f"{sli.worst:g}",
            sli.objective_text("{:g}".format),
            counted(sli.breached_samples, "sample") if sli.breached_samples else None,
            sli.worst_place or "",
        )
        for sli in report.slis
    )
    show_blocks(Table(title, head, rows), *network_totals(report))
    for problem in report.problems:
        err().print(problem, style="yellow", markup=False)
    if report.unread_samples:
        err().print(
            f"{report.unread_samples} of {report.samples} samples are of a lab that could not be "
            "read or whose processes do not all work: its health is unknown; `rocelab status "
            f"{report.lab}` says what runs",
            markup=False,
        )
    for folder in report.evidence:
        say(f"evidence: {folder}")
