"""`rocelab run`: unmodified programs on the servers of a running lab."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import (
    JsonOption,
    NetworkOption,
    RunningLabArgument,
    complete_server,
    running_lab,
)
from rocelab.linux.rights import need_root
from rocelab.report.console import err, show_document, write

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rocelab.programs.ranks import RankedProgram
    from rocelab.programs.running import OutputLine


def run(
    lab: RunningLabArgument,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- CMD...", help="The program and its arguments."),
    ],
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on",
            metavar="SERVERS",
            help="A server, or a pattern such as 'srv1-*'; may be given several times. The first "
            "server is the master. By default every server.",
            autocompletion=complete_server,
            show_default=False,
        ),
    ] = None,
    per_server: Annotated[
        int,
        typer.Option("--per-server", metavar="N", help="Programs on each server.", min=1, max=256),
    ] = 1,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME=VALUE",
            help="A variable for every program; may be given several times.",
            show_default=False,
        ),
    ] = None,
    network: NetworkOption = None,
    rdma: Annotated[
        bool,
        typer.Option(
            "--rdma",
            help="Ask for a Soft-RoCE device on each NIC, for RDMA verbs: exit code 3 and the "
            "reason where that cannot be, which is every kernel that was tried.",
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Run an unmodified program on servers of a running lab, and watch its TCP connections.

    One program a server, as rank 0, 1, ...: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and
    MASTER_PORT are set as by torchrun, with their names of Slurm and OpenMPI; names of nodes
    resolve; each server has its host name. Programs are this machine's, begin in the current
    folder, and send over kernel sockets of the lab's NICs, at the lab's rates. `mpirun` enters
    other nodes by itself.

    rocelab run zone-small --on 'srv*' -- python3 train.py

    rocelab run zone-small --on srv1-1 -- mpirun --host srv1-1,srv2-1 ./allreduce

    Lines are prefixed with the server where there are several programs. When one fails, the others
    are ended, and its code is the exit code. When all have ended, their connections are listed on
    stderr: goodput, retransmissions, round trips, stalls. Faults by hand may break the lab during
    the run. Ctrl-C ends the programs and all that they started; so does the end of this command,
    however it ends.
    """
    from rocelab.base.documents import to_json
    from rocelab.base.errors import InputError
    from rocelab.lab.inuse import Use, in_use
    from rocelab.programs.ranks import matching_servers, plan_programs
    from rocelab.programs.run import run_programs
    from rocelab.record import LabFiles
    from rocelab.report.programs import program_document

    if rdma:
        from rocelab.programs.rdma import has_soft_roce, refuse_rdma

        raise refuse_rdma(has_module=has_soft_roce())
    command = command[1:] if command[0] == "--" else command
    if not command:
        raise InputError("there is no command", hint="rocelab run LAB -- python3 train.py")
    variables = dict(_variable(text) for text in environment or ())
    need_root("entering a node")
    chosen = running_lab(lab)
    fabric = chosen.fabric.network(network)
    servers = matching_servers(fabric, on or ["*"])
    programs = plan_programs(fabric, servers, command, per_server=per_server, environment=variables)
    with in_use(LabFiles(chosen.name), "a program", Use.PROGRAM):
        report = run_programs(chosen, programs, folder=Path.cwd(), on_line=_printer(programs, json))
    if json:
        write([to_json(report)])
    else:
        show_document(program_document(report), err())
    if report.code:
        raise typer.Exit(report.code)


def _variable(text: str) -> tuple[str, str]:
    from rocelab.base.errors import InputError

    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InputError(f"--env {text} is no NAME=VALUE")
    return name, value


def _printer(programs: Sequence[RankedProgram], to_stderr: bool) -> Callable[[OutputLine], None]:
    """Prints what programs wrote, all on stderr where stdout is for JSON: of one program every
    byte, of several their lines with their names."""
    width = max(len(program.name) for program in programs)

    def show(line: OutputLine) -> None:
        stream = sys.stderr if to_stderr or line.stream == "stderr" else sys.stdout
        if len(programs) > 1:
            named = f"{programs[line.rank].name:{width}} | ".encode()
            stream.buffer.write(named + line.written.rstrip(b"\r\n") + b"\n")
        else:
            stream.buffer.write(line.written)
        stream.flush()

    return show
