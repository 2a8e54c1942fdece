"""`rocelab live`: a page in the browser that shows a running lab, and breaks it."""

from __future__ import annotations

from typing import Annotated

import typer

from rocelab.base.interruption import undone
from rocelab.cli.arguments import OneRunningLab, running_lab
from rocelab.linux.rights import need_root
from rocelab.report.console import say


def live(
    lab: OneRunningLab = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="PORT",
            help="Where to listen on loopback; by default a free port that only root may take, the "
            "same one each time.",
            show_default=False,
            min=1,
            max=65535,
        ),
    ] = None,
    read_only: Annotated[
        bool,
        typer.Option(
            "--read-only", help="Show only: the page injects no faults and sends no traffic."
        ),
    ] = False,
    terminal: Annotated[
        bool,
        typer.Option(
            "--terminal",
            help="Open vtysh or root's shell of a node in the page: anyone who has its URL is "
            "then root on this machine.",
        ),
    ] = False,
) -> None:
    """Serve a local dashboard of a running lab until Ctrl-C: its fabric with the load of each
    link, events as they happen, faults to inject, and jobs to run.

    Prints the page's URL, whose token lets whoever has it break the lab. Faults of the page are
    undone at the end, and its job is stopped.
    """
    from rocelab.base.errors import InputError
    from rocelab.live.server import serve

    if read_only and terminal:
        raise InputError("root's shell is not read-only", "leave --read-only or --terminal out")
    need_root("reading counters in nodes")
    chosen = running_lab(lab)

    def ready(url: str) -> None:
        say(f"lab {chosen.name} is at {url}")
        say("Ctrl-C ends the page, and clears its faults")

    try:
        serve(chosen, port, read_only=read_only, terminal=terminal, ready=ready)
    finally:
        undone(f"lab {chosen.name} is no longer served")
