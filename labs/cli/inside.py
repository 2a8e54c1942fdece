"""Commands that become another program inside a node: exec, shell, vtysh.

This process itself enters the node and is replaced by the program, so stdin, signals, terminal and
exit code are the program's own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from labs.cli.arguments import NodeArgument, RunningLab, need_root, running_lab, switch_of

if TYPE_CHECKING:
    from labs.lab import Lab

EXEC_SETTINGS = {"allow_interspersed_args": False, "ignore_unknown_options": True}


def exec_command(
    lab: RunningLab,
    node: NodeArgument,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- CMD...", help="The command and its arguments."),
    ],
) -> None:
    """Run a command in a node; its exit code is the command's."""
    from labs.errors import InputError

    command = command[1:] if command[0] == "--" else command
    if not command:
        raise InputError("there is no command", hint="rocelab exec LAB NODE -- ip route")
    need_root("entering a node")
    _become(running_lab(lab), node, command)


def shell(lab: RunningLab, node: NodeArgument) -> None:
    """Open your shell in a node."""
    need_root("entering a node")
    chosen = running_lab(lab)
    program = os.environ.get("SHELL") or "/bin/sh"
    prompt = f"{chosen.name}/{chosen.node(node).name}:\\w\\$ "
    environment = {"PS1": prompt, "ROCELAB_LAB": chosen.name, "ROCELAB_NODE": node}
    arguments = [program]
    if Path(program).name == "bash":
        arguments += ["--rcfile", _bash_start_file(prompt)]
    _become(chosen, node, arguments, environment)


def _bash_start_file(prompt: str) -> str:
    """A file, in memory only, that sets the prompt after the user's own start-up file has."""
    descriptor = os.memfd_create("rocelab", 0)
    os.write(descriptor, f"[ -r ~/.bashrc ] && . ~/.bashrc\nPS1='{prompt}'\n".encode())
    os.lseek(descriptor, 0, os.SEEK_SET)
    return f"/dev/fd/{descriptor}"


def vtysh(
    lab: RunningLab,
    node: NodeArgument,
    commands: Annotated[
        list[str] | None,
        typer.Option("-c", metavar="CMD", help="Run this and end; may be given several times."),
    ] = None,
) -> None:
    """Talk to the FRR daemons of a switch."""
    from labs.runtime.daemons import vtysh_path

    need_root("entering a node")
    chosen = running_lab(lab)
    files = chosen.node(switch_of(chosen, node).name).frr
    arguments = [vtysh_path(), "--vty_socket", str(files.folder)]
    for command in commands or []:
        arguments += ["-c", command]
    _become(chosen, node, arguments)


def cli(lab: RunningLab) -> None:
    """Open Mininet's command line on a lab that is up, whatever its runtime."""
    need_root("entering a node")
    chosen = running_lab(lab)
    from labs.mininet import LabCLI, LabNet

    net = LabNet(chosen)
    try:
        LabCLI(net)
    finally:
        net.leave()


def _become(
    lab: Lab, node: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> NoReturn:
    """Replace this process by a program inside the node. Raises InputError when it can not."""
    from labs.errors import InputError

    handle = lab.node(node)
    if not os.path.ismount(handle.netns):
        raise InputError(
            f"node {node} of lab {lab.name} is gone",
            hint=f"take the rest down with `rocelab down {lab.name}`",
        )
    try:
        handle.become(arguments, environment or {})
    except OSError as error:
        raise InputError(f"can not run {arguments[0]}: {error.strerror}") from None
