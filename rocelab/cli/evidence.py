"""`rocelab evidence`: collects the present state of nodes of a running lab in a folder."""

from __future__ import annotations

from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from rocelab.base.wording import counted
from rocelab.cli.arguments import (
    JsonOption,
    RunningLabArgument,
    complete_network,
    complete_node,
    running_lab,
)
from rocelab.linux.rights import need_root
from rocelab.report.console import progress_bars, say, write


def evidence(
    lab: RunningLabArgument,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NODE]...",
            help="All nodes by default.",
            autocompletion=complete_node,
            show_default=False,
        ),
    ] = None,
    folder: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="DIR", help="A new folder.", show_default=False),
    ] = ...,  # type: ignore[assignment]
    network: Annotated[
        str | None,
        typer.Option(
            "--network",
            metavar="NAME",
            help="Of a lab with several networks, the one whose nodes are read: all by default.",
            autocompletion=complete_network,
            show_default=False,
        ),
    ] = None,
    capture: Annotated[
        float,
        typer.Option(
            "--capture", min=0, max=600, metavar="SECONDS", help="How long to capture packets."
        ),
    ] = 1.0,
    why: Annotated[str, typer.Option(help="What to write into the index.")] = "asked for",
    json: JsonOption = False,
) -> None:
    """Collect configurations, tables, counters, logs and a short capture of nodes."""
    from rocelab.observe.evidence.bundle import INDEX, collect_evidence

    need_root("reading in nodes")
    chosen = running_lab(lab)
    chosen = chosen if network is None else chosen.network(network)
    names = nodes or [node.name for node in chosen.fabric.nodes]
    with progress_bars() as progress:
        bundle = collect_evidence(
            chosen, names, folder, capture_s=capture, why=why, progress=progress
        )
    if json:
        write([dumps(asdict(bundle), indent=1), "\n"])
        return
    which = "" if network is None else f" of network {network}"
    what = f"{counted(len(bundle.items), 'file')} of {counted(len(names), 'node')}{which}"
    say(f"{what} in {folder} ({bundle.took_s:.1f} s)")
    for gap in bundle.gaps:
        say(f"not there: {gap.file}: {gap.what}: {gap.why}")
    say(f"{folder / INDEX} lists them")
