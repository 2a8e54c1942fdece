"""The command `rocelab`: its own options, and the single place that handles errors."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import typer
from typer.core import TyperGroup

import rocelab
from rocelab.base.errors import COMMAND_LINE, RocelabError, SpecError
from rocelab.base.interruption import leave_pipe
from rocelab.base.plugin_errors import plugin_error
from rocelab.base.refusal import refusal
from rocelab.base.wording import printable, visible
from rocelab.cli.remote import CommandLine
from rocelab.report.console import is_reader_gone

DEFECT_EXIT_CODE = 70
"""EX_SOFTWARE of sysexits.h."""
PIPE_EXIT_CODE = 141
"""A shell's code for a program that SIGPIPE ended, like most programs before `| head`."""

EXIT_CODES = {
    "0": "fine",
    "1": "an expectation failed: a drill, a lab that is not converged, a probe that took another "
    "path, a queue pair in error",
    "2": "the input or an installed package that adds to rocelab is wrong; the message says where "
    "and what to do",
    "3": "this machine cannot run it, or could not keep up with the run",
    "70": "a defect of rocelab: please report the traceback",
    "75": "the connection to another machine broke; the run there continues ([remote](remote.md))",
    "130": "interrupted by Ctrl-C; the command has cleaned up, and prints one line about it",
    "143, 129": "the same for SIGTERM, and for SIGHUP (the terminal was closed)",
    "141": "the reader of the output has ended, as in `rocelab list | head -1`",
}
"""The meaning of each exit code, for docs/commands.md. 75 is EX_TEMPFAIL of sysexits.h; a signal
gives 128 plus its number."""


@dataclass(slots=True)
class Settings:
    """The options before the command."""

    debug: bool = False
    host: str | None = None


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rocelab {rocelab.__version__}")
        raise typer.Exit


def _root(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    host: Annotated[
        str | None,
        typer.Option(
            "--host",
            metavar="USER@HOST[:PORT]",
            help="Run the command on that machine, over SSH.",
            show_default=False,
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", help="Show the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Clos fabrics of real FRR routers from one YAML file, and failures measured on them."""
    context.obj.debug = debug
    context.obj.host = host


def build_app() -> typer.Typer:
    """The application without commands: the options before them."""
    app = typer.Typer(
        cls=CommandLine,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def run(app: TyperGroup, arguments: Sequence[str] | None = None) -> None:
    """Run a command line, sys.argv by default. Always ends with SystemExit."""
    # That a locale lacks a character, such as an arrow, is no reason to end; stderr escapes it.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            _run(app, arguments)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        leave_pipe()
        sys.exit(PIPE_EXIT_CODE)


def _run(app: TyperGroup, arguments: Sequence[str] | None) -> None:
    settings = Settings()
    try:
        app(args=arguments, obj=settings, prog_name="rocelab")
    except Exception as error:
        if isinstance(error, BrokenPipeError) and is_reader_gone():
            raise
        message = error if isinstance(error, RocelabError) else plugin_error(error)
        if message is None and not settings.debug:
            message = refusal(error)
        if settings.debug or message is None:
            _print_traceback()
        else:
            show_error(message, _typed_command(app, arguments))
        if message is not None:
            sys.exit(message.exit_code)
        sys.stderr.write("this is a defect of rocelab: please report it with the lines above\n")
        sys.exit(DEFECT_EXIT_CODE)
    sys.exit(0)


def _print_traceback() -> None:
    """Print the traceback, escaped: its messages may quote the content of a file."""
    sys.stderr.write(visible(traceback.format_exc()))


def _typed_command(app: TyperGroup, arguments: Sequence[str] | None) -> str:
    """The command as typed, without options: `rocelab drill run`."""
    words, known = ["rocelab"], app.commands
    typed = iter(sys.argv[1:] if arguments is None else arguments)
    for word in typed:
        if word == "--host" and len(words) == 1:
            next(typed, None)  # a machine may be called as a command is
        elif word in known:
            words.append(word)
            known = getattr(known[word], "commands", {})
        elif len(words) > 1:
            break
    return " ".join(words)


def show_error(error: RocelabError, command: str) -> None:
    """Print the message on stderr, in red on a colour terminal, then hints and notes.

    Every problem begins with where it is: in a file, or else in `command`.
    """
    from rocelab.report.console import err

    console = err()
    text = f"{command}: {error}"
    if isinstance(error, SpecError):
        text = "\n".join(
            str(
                replace(problem, file=command, line=None)
                if problem.file == COMMAND_LINE
                else problem
            )
            for problem in error.problems
        )
    for line in text.splitlines():
        style = "" if line.startswith("  hint:") else "red"
        console.print(printable(line), style=style, markup=False, soft_wrap=True)
    for note in getattr(error, "__notes__", ()):
        console.print(printable(f"  {note}"), markup=False, soft_wrap=True)
