"""Arguments that commands share, how the shell completes them, and the lab they name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from labs.runtime.kind import RuntimeKind

if TYPE_CHECKING:
    from labs.lab import Lab
    from labs.plan.fabric import Node


def _complete_lab(incomplete: str) -> list[str]:
    from labs.runtime.record import recorded_labs
    from labs.spec.catalog import catalog_names

    names = {*catalog_names(), *recorded_labs()}
    return sorted(name for name in names if name.startswith(incomplete))


def _complete_running(incomplete: str) -> list[str]:
    from labs.runtime.record import recorded_labs

    return [name for name in recorded_labs() if name.startswith(incomplete)]


def _complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    from labs.errors import RocelabError

    try:
        lab, _ = running_or_planned(str(ctx.params.get("lab")))
    except (RocelabError, OSError):
        return []
    return [node.name for node in lab.fabric.nodes if node.name.startswith(incomplete)]


LabArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAB",
        help="A lab of the catalog, or the path of a YAML file.",
        autocompletion=_complete_lab,
        show_default=False,
    ),
]
RunningLab = Annotated[
    str,
    typer.Argument(
        metavar="LAB",
        help="A lab that is up: its name, or its file.",
        autocompletion=_complete_running,
        show_default=False,
    ),
]
OneRunningLab = Annotated[
    str | None,
    typer.Argument(
        metavar="[LAB]",
        help="A lab that is up; may be left out when there is only one.",
        autocompletion=_complete_running,
        show_default=False,
    ),
]
NodeArgument = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="A node of the lab, such as rtsw1.",
        autocompletion=_complete_node,
        show_default=False,
    ),
]
RuntimeOption = Annotated[
    RuntimeKind, typer.Option("--runtime", help="What nodes are: namespaces or containers.")
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        "--image",
        help="Image of containers; without it one is built from Debian packages.",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]


def need_root(what: str) -> None:
    """Raises MachineError for a user without the rights to enter namespaces."""
    from labs.errors import MachineError

    if os.geteuid() != 0:
        raise MachineError(f"{what} needs root", hint="run it with sudo")


def running_lab(text: str | None) -> Lab:
    """The lab that is up of that name or file; without text the only one that is up.

    Raises InputError when it is not up, or when there is none or more than one to choose from.
    """
    from labs.errors import InputError
    from labs.lab import Lab
    from labs.status import Presence, known_labs

    if text is None:
        names = [lab.name for lab in known_labs() if lab.state is Presence.RUNNING]
        if not names:
            raise InputError("no lab is up", hint="bring one up with `rocelab up LAB`")
        if len(names) > 1:
            raise InputError(
                f"{len(names)} labs are up: {', '.join(names)}", hint="name the one you mean"
            )
        text = names[0]
    return Lab.running(text)


def running_or_planned(text: str) -> tuple[Lab, bool]:
    """The lab of that name or file as it runs, or else as its file plans it; and which it is.

    Raises InputError, and SpecError with every problem of the file.
    """
    from labs.lab import Lab
    from labs.runtime.record import State, read_record, recorded_labs

    name = text if text in recorded_labs() else Lab.planned(text).name
    record = read_record(name)
    if record is not None and record.state is State.RUNNING:
        return Lab.running(name), True
    return Lab.planned(text), False


def switch_of(lab: Lab, name: str) -> Node:
    """The switch of that name. Raises InputError for a server and for a node that is not there."""
    from labs.errors import InputError

    node = lab.fabric.node(lab.node(name).name)
    if not node.is_switch:
        some = ", ".join(switch.name for switch in lab.fabric.switches[:4])
        raise InputError(
            f"{name} is a server and runs no routing daemon", hint=f"switches are {some} ..."
        )
    return node
