"""The console script `rocelab`: all commands of `rocelab.cli`, each loaded when it is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from rocelab.base.collection import collect_seldom
from rocelab.base.interruption import ending

if TYPE_CHECKING:
    import typer
    from typer.core import TyperCommand, TyperGroup

_PLAN, _RUN, _MEASURE, _BREAK = "Plan", "Run", "Measure", "Inject faults"
_SIMULATE, _LOOK, _ELSEWHERE = "Simulate", "Inspect", "Remote"
_COMMANDS = {
    "labs": (
        _PLAN,
        "catalog:list_catalog",
        "List the labs in labs/ of this folder and those that ship: size, memory, what "
        "each uses, and whether it fits this machine.",
    ),
    "plan": (
        _PLAN,
        "planning:plan",
        "Show what a lab means: nodes, links, addresses, ASNs, BGP sessions, ECMP widths.",
    ),
    "render": (
        _PLAN,
        "planning:render",
        "Write a lab's configuration files.",
    ),
    "graph": (
        _PLAN,
        "planning:graph",
        "Draw a lab's fabric, tiers in rows.",
    ),
    "import": (
        _PLAN,
        "imports:import_topology",
        "Write a lab file for the network that other tools describe.",
    ),
    "schema": (
        _PLAN,
        "planning:schema",
        "Print the JSON Schema of a kind of file, for editors that complete and check YAML.",
    ),
    "doctor": (
        _RUN,
        "doctor:doctor",
        "Check this machine's requirements for labs: what is installed, its purpose, how to get "
        "it.",
    ),
    "adopt": (
        _RUN,
        "adopt:adopt",
        "Adopt a lab that containerlab deployed: faults, traffic, health and drills then "
        "work on it.",
    ),
    "release": (
        _RUN,
        "adopt:release",
        "Release an adopted lab: clear its faults and forget it. The lab stays up.",
    ),
    "up": (
        _RUN,
        "lifecycle:up",
        "Bring a lab up; ends when every switch holds every route with its full ECMP width.",
    ),
    "down": (
        _RUN,
        "lifecycle:down",
        "Stop a lab, or clean up what an interrupted command left behind. Needs only the record, "
        "no file.",
    ),
    "list": (
        _RUN,
        "lifecycle:list_labs",
        "List the labs that are up, coming up, or left behind by a command that was killed.",
    ),
    "status": (
        _LOOK,
        "lifecycle:status",
        "Show lab health: daemons, BGP sessions, ECMP routes, memory. Exits 1 when the lab is "
        "not as planned.",
    ),
    "shell": (
        _LOOK,
        "inside:shell",
        "Open your shell in a node.",
    ),
    "live": (
        _LOOK,
        "live:live",
        "Serve a local dashboard of a running lab until Ctrl-C: its fabric with the load "
        "of each link, events as they happen, faults to inject, and jobs to run.",
    ),
    "events": (
        _LOOK,
        "events:events",
        "Follow what happens in a running lab until Ctrl-C: carriers, BGP sessions, routes, "
        "faults, nodes that are not as planned.",
    ),
    "inventory": (
        _LOOK,
        "inventory:inventory",
        "Print the nodes of a lab with `management: true` for Ansible, ssh or /etc/hosts.",
    ),
    "vtysh": (
        _LOOK,
        "inside:vtysh",
        "Talk to the routing daemons of a switch, with `vtysh` or its stack's own command line.",
    ),
    "cli": (
        _LOOK,
        "inside:cli",
        "Open Mininet's command line on a running lab of any runtime.",
    ),
    "path": (
        _LOOK,
        "path:path",
        "Show every hop a flow takes: from the running kernels' tables, or as planned.",
    ),
    "reach": (
        _LOOK,
        "reach:reach",
        "Send a packet from every NIC to every other server's, and list the lost ones.",
    ),
    "scheme": (
        _LOOK,
        "scheme:scheme",
        "Show how a lab spreads flows over equal paths, or switch it while traffic runs.",
    ),
    "te": (
        _LOOK,
        "te:te",
        "Show what the controller of a lab with scheme te or resilient does.",
    ),
    "capture": (
        _LOOK,
        "capture:capture",
        "Capture packets of ports until Ctrl-C, --count or --seconds. FILE is always complete; "
        "after Ctrl-C the exit code is 130.",
    ),
    "exec": (
        _LOOK,
        "inside:exec_command",
        "Run a command in a node; its exit code is the command's.",
    ),
    "run": (
        _MEASURE,
        "run:run",
        "Run an unmodified program on servers of a running lab, and watch its TCP connections.",
    ),
    "ping": (
        _LOOK,
        "inside:ping",
        "Ping from one node to another: from a switch's loopback or a server's first NIC.",
    ),
    "fault": (
        _BREAK,
        "fault:app",
        "Inject faults into a running lab, list them, and clear them.",
    ),
    "traffic": (
        _MEASURE,
        "traffic:traffic",
        "Run jobs on a running lab, emulating RoCE NICs.",
    ),
    "diagnose": (
        _MEASURE,
        "diagnose:diagnose",
        "Find what slowed a job down: a paused host, a grey, slow or congested link, or nothing; "
        "with PFC also a slow receiver, a pause storm, an incast, or being a victim of one of "
        "them.",
    ),
    "compare": (
        _MEASURE,
        "compare:compare",
        "Run a job under every scheme, number of queue pairs and placement, and compare the "
        "results.",
    ),
    "predict": (
        _PLAN,
        "predict:predict",
        "Predict the links of the flows of a job or a file: loads, balance, polarization.",
    ),
    "simulate": (
        _SIMULATE,
        "simulate:simulate",
        "Estimate job time and bandwidth on fabrics of up to 100,000 GPUs.",
    ),
    "whatif": (
        _SIMULATE,
        "longrun:whatif",
        "Estimate the cost of a failure or maintenance for each job.",
    ),
    "longrun": (
        _SIMULATE,
        "longrun:longrun",
        "Estimate the cost of failures over days or months: completion time, stalls, restarts.",
    ),
    "sweep": (
        _SIMULATE,
        "sweep:sweep",
        "Simulate every combination of values of a lab's and a job's keys, and report "
        "side by side.",
    ),
    "reference": (
        _SIMULATE,
        "trace:reference",
        "Compare a table of nccl-tests with a simulation of each of its sizes.",
    ),
    "requests": (
        _SIMULATE,
        "requests:requests",
        "Look at a trace of requests to a served model: rates, lengths, and what its caches weigh.",
    ),
    "health": (
        _LOOK,
        "health:health",
        "Sample the health of a running lab until Ctrl-C, --for or --once. Exits 1 when "
        "--for or --once saw an objective missed, could not read all of the lab or found "
        "a process that does not work, 130 after Ctrl-C. With --json each sample is a "
        "line, and the report the last.",
    ),
    "evidence": (
        _LOOK,
        "evidence:evidence",
        "Collect configurations, tables, counters, logs and a short capture of nodes.",
    ),
    "drill": (
        _MEASURE,
        "drill:app",
        "Rehearse failures and jobs: list, explain, run and compare drills.",
    ),
    "image": (
        _PLAN,
        "image:app",
        "The container image of nodes, with FRR.",
    ),
    "runs": (
        _ELSEWHERE,
        "remote:runs",
        "List the runs on another machine that continue, or whose results are still there.",
    ),
    "attach": (
        _ELSEWHERE,
        "remote:attach",
        "Attach to a run on another machine: all of its output, its results, its exit code.",
    ),
}
"""The panel of help in which a command is, its module and function or group in `rocelab.cli`, and
what help says of it in the list of commands (a test holds it to the command's own help); in the
order of help."""
Read = Any
"""A command of typer's parser, whose classes differ between versions."""
_PASSED_ON = {"allow_interspersed_args": False, "ignore_unknown_options": True}
_SETTINGS = {"exec": _PASSED_ON, "ping": _PASSED_ON}
"""Commands whose words after their own go to another program as they are."""
_WITH_SETTINGS = {"scheme"}
"""Commands with options `--set KEY=VALUE`."""


def build(names: Collection[str] = tuple(_COMMANDS)) -> typer.Typer:
    """The command line with these commands, whose modules are loaded; with all by default."""
    from importlib import import_module

    import typer

    from rocelab.cli.app import build_app

    app = build_app()
    for name in names:
        panel, where, _ = _COMMANDS[name]
        module, attribute = where.split(":")
        target = getattr(import_module(f"rocelab.cli.{module}"), attribute)
        if isinstance(target, typer.Typer):
            for command in target.registered_commands:
                command.help = _flowing(command.callback)
            app.add_typer(target, name=name, rich_help_panel=panel)
        else:
            app.command(
                name,
                cls=_class_of(name),
                help=_flowing(target),
                rich_help_panel=panel,
                context_settings=_SETTINGS.get(name),
            )(target)
    return app


def _class_of(name: str) -> type[TyperCommand] | None:
    """The class of a command, None for typer's own."""
    if name not in _WITH_SETTINGS:
        return None
    from rocelab.cli.keyed import SettingCommand

    return SettingCommand


def _flowing(command: object) -> str:
    """The help of a command, whose paragraphs are lines: a terminal of any width breaks them."""
    from inspect import getdoc

    paragraphs = (getdoc(command) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


class _Commands(Mapping[str, Read]):
    """All commands by name, as typer's parser wants them. To load them all takes longer than most
    commands run, so one that is looked up is loaded alone; all are, for completion."""

    def __init__(self) -> None:
        self._loaded: dict[str, Read] = {}

    def __getitem__(self, name: str) -> Read:
        if name not in self._loaded:
            if name not in _COMMANDS:
                raise KeyError(name)
            self._loaded[name] = _group([name]).commands[name]
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in _COMMANDS

    def __iter__(self) -> Iterator[str]:
        if len(self._loaded) < len(_COMMANDS):
            self._loaded = dict(_group().commands)
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


def _group(names: Collection[str] = tuple(_COMMANDS)) -> TyperGroup:
    from typer.core import TyperGroup
    from typer.main import get_command

    group = get_command(build(names))
    assert isinstance(group, TyperGroup)
    return group


@cache
def command_line() -> TyperGroup:
    """All commands, ready to run, each loaded when it is looked up."""
    from rocelab.cli.remote import CommandLine

    group = _group([])
    assert isinstance(group, CommandLine)
    group.commands = _Commands()  # type: ignore[assignment]
    group.summaries = {name: (panel, text) for name, (panel, _, text) in _COMMANDS.items()}
    return group


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, sys.argv by default. Always ends with SystemExit."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    collect_seldom()
    # Loading takes much of a second; signals are already handled during that time.
    with ending():
        from rocelab.base.interpreter import leave_current_folder_out
        from rocelab.cli.app import run

        leave_current_folder_out()
        run(command_line(), arguments)
