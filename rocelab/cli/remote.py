"""Sends a command line with `--host` to the other machine, after parsing it here.

Parsing here makes help, usage errors and completion work locally. The command then goes to
`rocelab.remote`, with its parsed parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from textwrap import fill
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from rocelab.base.errors import InputError
from rocelab.cli.arguments import JsonOption
from rocelab.cli.unprivileged import take_rights_of
from rocelab.report.console import is_reader_gone

HERE = frozenset({"runs", "attach"})
"""Commands about another machine's runs, which use `--host` themselves."""
TALKERS = frozenset({"shell", "cli"})
MEANT = {
    **dict.fromkeys(("create", "deploy", "start"), "up"),
    **dict.fromkeys(("delete", "destroy", "kill", "rm", "stop"), "down"),
    **dict.fromkeys(("inspect", "show"), "status"),
    **dict.fromkeys(("ls", "ps"), "list"),
    **dict.fromkeys(("connect", "ssh"), "shell"),
    **dict.fromkeys(("break", "inject"), "fault inject"),
    **dict.fromkeys(("dashboard", "ui", "web"), "live"),
    **dict.fromkeys(("draw", "topology"), "graph"),
    "check": "doctor",
    "diff": "drill diff",
    "logs": "events",
    "restore": "fault restore",
    "test": "drill run",
    "trace": "path",
    "validate": "plan",
}
"""What other tools call a command, and its name here."""
_FIRST = """First steps:
  rocelab doctor            what a lab needs of this machine
  rocelab up zone-small     a lab of 4 racks; `rocelab down zone-small` ends it
  rocelab drill list        failures to rehearse

`rocelab help` says what each command does, `rocelab help COMMAND` its options."""


Read = Any
"""An object of typer's parser, whose classes differ between versions."""


class CommandLine(TyperGroup):
    """The command line, whose commands run on another machine with `--host`.

    `summaries` has the panel and the text of each command in the list of commands: its help loads
    none of them.
    """

    summaries: Mapping[str, tuple[str, str]]

    def format_help(self, ctx: Read, formatter: Read) -> None:
        """Write the help, with what `summaries` says of each command."""
        loaded = self.commands
        self.commands = {
            name: TyperCommand(name, help=text, rich_help_panel=panel)
            for name, (panel, text) in self.summaries.items()
        }
        try:
            super().format_help(ctx, formatter)
        finally:
            self.commands = loaded

    def parse_args(self, ctx: Read, args: list[str]) -> list[str]:
        """Read the words, of which `help` and `version` are options in other words; none at all
        print the commands by name."""
        match args:
            case [] if not ctx.resilient_parsing:
                typer.echo(self._overview())
                ctx.exit()
            case ["help", *command]:
                args = [*command, "--help"]
            case ["version"]:
                args = ["--version"]
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def _overview(self) -> str:
        """The commands by name, on a screen of 24 lines."""
        panels: dict[str, list[str]] = {}
        for name, (panel, _) in self.summaries.items():
            panels.setdefault(panel, []).append(name)
        rows = [
            fill(", ".join(names), 78, initial_indent=f"  {panel:15}", subsequent_indent=" " * 17)
            for panel, names in panels.items()
        ]
        usage = "Usage: rocelab [OPTIONS] COMMAND [ARGS]..."
        return "\n".join((usage, "", fill(str(self.help), 79), "", *rows, "", _FIRST))

    def invoke(self, ctx: Read) -> Read:
        """Run the command. Raises BrokenPipeError without an errno if the reader of the output has
        gone: with an errno, the parser would exit with 1, which has another meaning."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            if is_reader_gone():
                raise BrokenPipeError from None
            raise

    def resolve_command(self, ctx: Read, args: list[str]) -> Read:
        """Find the command. One that has another name in other tools is not guessed at by its
        letters."""
        if args[0] in MEANT and args[0] not in self.summaries and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{MEANT[args[0]]}'?")
        name, command, rest = super().resolve_command(ctx, args)
        host = ctx.params.get("host")
        if host is None or name in HERE or ctx.resilient_parsing:
            if not ctx.resilient_parsing:
                take_rights_of(str(name), rest)
            return name, command, rest
        raise SystemExit(_run_elsewhere(ctx, host, list(args), command, rest))


def _run_elsewhere(ctx: Read, host: str, words: list[str], command: Read, rest: list[str]) -> int:
    name = words[0]
    parent = ctx
    while hasattr(command, "resolve_command"):
        # A group has no options: the next word is its command.
        parent = command.make_context(name, list(rest), parent=parent)
        name, command, rest = command.resolve_command(parent, rest)
    # Parsing removes words from the list.
    values = dict(command.make_context(name, list(rest), parent=parent).params)
    from rocelab.cli.host import run_elsewhere

    debug = ["--debug"] if ctx.params.get("debug") else []
    return run_elsewhere(host, [*debug, *words], values, talks=_is_interactive(name, values))


def _is_interactive(name: str, values: dict[str, object]) -> bool:
    """Whether the command is interactive; False without a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return name in TALKERS or name == "exec" or (name == "vtysh" and not values.get("commands"))


def runs(
    context: typer.Context,
    remove: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Remove a run that has ended.", show_default=False),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the runs on another machine that continue, or whose results are still there."""
    host = _host_of(context)
    from rocelab.cli.host import remove_run, show_runs

    if remove is not None:
        remove_run(host, remove)
    else:
        show_runs(host, json=json)


def attach(
    context: typer.Context,
    run: Annotated[
        str | None,
        typer.Argument(metavar="[RUN]", help="Optional when there is only one."),
    ] = None,
) -> None:
    """Attach to a run on another machine: all of its output, its results, its exit code."""
    host = _host_of(context)
    from rocelab.cli.host import attach_to

    raise typer.Exit(attach_to(host, run))


def _host_of(context: typer.Context) -> str:
    host = context.obj.host
    if host is None:
        raise InputError(
            f"{context.info_name} is about another machine",
            hint=f"rocelab --host user@vm {context.info_name}",
        )
    return str(host)
