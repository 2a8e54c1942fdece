"""Commands that run another program inside a node: exec, shell, vtysh.

This process itself enters the node and is replaced by the program, so stdin, signals, terminal and
exit code are the program's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from rocelab.cli.arguments import (
    NodeArgument,
    OneRunningLab,
    RunningLabArgument,
    complete_node,
    running_lab,
    switch_of,
)
from rocelab.linux.rights import need_root

if TYPE_CHECKING:
    from rocelab.lab.lab import RunningLab
    from rocelab.lab.node import NamespaceNode


def exec_command(
    lab: RunningLabArgument,
    node: NodeArgument,
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- CMD...", help="The command and its arguments."),
    ],
) -> None:
    """Run a command in a node; its exit code is the command's."""
    from rocelab.base.errors import InputError

    command = command[1:] if command[0] == "--" else command
    if not command:
        raise InputError("there is no command", hint="rocelab exec LAB NODE -- ip route")
    need_root("entering a node")
    _become(running_lab(lab), node, command)


def shell(lab: RunningLabArgument, node: NodeArgument) -> None:
    """Open your shell in a node."""
    need_root("entering a node")
    chosen = running_lab(lab)
    _become(chosen, node, *chosen.node(node).shell())


def vtysh(
    lab: RunningLabArgument,
    node: NodeArgument,
    commands: Annotated[
        list[str] | None,
        typer.Option("-c", metavar="CMD", help="Run this and end; may be given several times."),
    ] = None,
) -> None:
    """Talk to the routing daemons of a switch, with `vtysh` or its stack's own command line."""
    need_root("entering a node")
    chosen = running_lab(lab)
    handle = chosen.node(switch_of(chosen, node).name)
    arguments = [*handle.command_line, *handle.stack.shell_arguments(commands or [])]
    _become(chosen, node, arguments)


def ping(
    lab: RunningLabArgument,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="The node that pings.",
            show_default=False,
            autocompletion=complete_node,
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(
            metavar="DST",
            help="The node that answers, or a server's NIC, such as srv1-1:2.",
            show_default=False,
            autocompletion=complete_node,
        ),
    ],
    options: Annotated[
        list[str] | None,
        typer.Argument(metavar="[OPTIONS]", help="Options of ping(8), such as -c 3."),
    ] = None,
) -> None:
    """Ping from one node to another: from a switch's loopback or a server's first NIC.

    Without -c it runs until Ctrl-C. A server routes by its first NIC; `rocelab reach` sends by
    every one. The exit code is ping's.

    rocelab ping zone-small srv1-1 srv4-1 -c 3
    """
    from rocelab.base.errors import MachineError
    from rocelab.lab.node import NamespaceNode

    need_root("entering a node")
    chosen = running_lab(lab)
    node, ends = chosen.node(source), [_address(chosen, source), _address(chosen, destination)]
    if shutil.which("ping") is None:
        raise MachineError("ping is not installed", "install it with `make setup` (iputils-ping)")
    # The machine's ping, also for containers.
    tool = NamespaceNode(node.name, node.files)
    words = options[1:] if options and options[0] == "--" else options or []
    _become_in(tool, chosen.name, ["ping", "-I", ends[0], *words, ends[1]], {})


def _address(lab: RunningLab, name: str) -> str:
    """The address of a switch's loopback, or of a server's NIC, by default its first.

    Raises InputError if there is no such node or NIC.
    """
    from rocelab.jobs.placement import find_nic

    server, colon, _ = name.partition(":")
    node = lab.fabric.node(lab.node(server).name)
    if node.loopback is not None and not colon:
        return node.loopback
    return find_nic(lab.fabric, name).ip


def cli(lab: OneRunningLab = None) -> None:
    """Open Mininet's command line on a running lab of any runtime."""
    need_root("entering a node")
    chosen = running_lab(lab)
    from rocelab.mininet import LabCLI, LabNet

    net = LabNet(chosen)
    try:
        LabCLI(net)
    finally:
        net.leave()


def _become(
    lab: RunningLab,
    node: str,
    arguments: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> NoReturn:
    """Replace this process by a program inside the node. Raises InputError if it cannot."""
    _become_in(lab.node(node), lab.name, arguments, environment or {})


def _become_in(
    handle: NamespaceNode, lab: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> NoReturn:
    from rocelab.base.errors import InputError

    if not handle.netns.exists():
        raise InputError(
            f"node {handle.name} of lab {lab} is gone",
            hint=f"take the rest down with `rocelab down {lab}`",
        )
    try:
        handle.become(arguments, environment)
    except OSError as error:
        raise InputError(f"cannot run {arguments[0]}: {error.strerror}") from None
