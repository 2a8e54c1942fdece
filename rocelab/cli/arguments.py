"""Arguments that commands share, their shell completion, and the labs that they name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer.models import OptionInfo

if TYPE_CHECKING:
    from rocelab.lab.lab import Lab, RunningLab
    from rocelab.labfile.catalog import Catalog
    from rocelab.planning.fabric import Fabric, Node


def completed(catalog: Catalog, incomplete: str) -> list[str]:
    """The names in a catalog that begin with `incomplete`: the user's own, and the shipped ones."""
    from rocelab.labfile.catalog import own_files, shipped_names

    names = {*own_files(catalog), *shipped_names(catalog)}
    return sorted(name for name in names if name.startswith(incomplete))


def _complete_lab(incomplete: str) -> list[str]:
    from rocelab.labfile.catalog import LABS

    return sorted({*completed(LABS, incomplete), *complete_running(incomplete)})


def complete_jobs(incomplete: str) -> list[str]:
    """The names of files of jobs."""
    from rocelab.labfile.catalog import JOBS

    return completed(JOBS, incomplete)


def complete_schemes(incomplete: str) -> list[str]:
    """The names of load-balancing schemes."""
    from rocelab.labfile.schemes.scheme_spec import SCHEMES

    return [kind for kind in SCHEMES if kind.startswith(incomplete)]


def complete_running(incomplete: str) -> list[str]:
    """The labs that have a record on this machine."""
    from rocelab.record import recorded_labs

    return [name for name in recorded_labs() if name.startswith(incomplete)]


def complete_node(ctx: typer.Context, incomplete: str) -> list[str]:
    """The nodes of the lab that the command line names."""
    return [node.name for node in _nodes(ctx) if node.name.startswith(incomplete)]


def complete_server(ctx: typer.Context, incomplete: str) -> list[str]:
    """The servers of the lab that the command line names."""
    servers = (node.name for node in _nodes(ctx) if not node.is_switch)
    return [name for name in servers if name.startswith(incomplete)]


def complete_port(ctx: typer.Context, incomplete: str) -> list[str]:
    """The nodes of the lab that the command line names, and after a colon the node's ports."""
    node, colon, _ = incomplete.partition(":")
    fabric = _fabric(ctx)
    if not colon or fabric is None:
        return complete_node(ctx, incomplete)
    ports = (link.port(node) for link in fabric.links_of.get(node, ()))
    return [text for port in ports if (text := str(port)).startswith(incomplete)]


def _nodes(ctx: typer.Context) -> Sequence[Node]:
    fabric = _fabric(ctx)
    return () if fabric is None else fabric.nodes


def _fabric(ctx: typer.Context) -> Fabric | None:
    from rocelab.base.errors import RocelabError

    try:
        lab = running_or_planned(str(ctx.params.get("lab")))
    except (RocelabError, OSError):
        return None
    return lab.fabric


def complete_network(ctx: typer.Context, incomplete: str) -> list[str]:
    """The networks of the lab that the command line names."""
    fabric = _fabric(ctx)
    names = () if fabric is None else (part.network_name or "" for part in fabric.parts)
    return [name for name in names if name.startswith(incomplete)]


def results_option(default: str = "", panel: str | None = "Input and output") -> OptionInfo:
    """The option with the folder of results. default: what the help says of it; else none are
    written."""
    option: OptionInfo = typer.Option(
        "--out",
        metavar="DIR",
        help="Where result.json and report.html go.",
        show_default=default or False,
        rich_help_panel=panel,
    )
    return option


LabArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAB",
        help="The name of a lab (in labs/ of this folder, or shipped), or a path.",
        autocompletion=_complete_lab,
        show_default=False,
    ),
]
RunningLabArgument = Annotated[
    str,
    typer.Argument(
        metavar="LAB",
        help="A lab that is up: its name, or its file.",
        autocompletion=complete_running,
        show_default=False,
    ),
]
OneRunningLab = Annotated[
    str | None,
    typer.Argument(
        metavar="[LAB]",
        help="A lab that is up; optional when there is only one.",
        autocompletion=complete_running,
        show_default=False,
    ),
]
NodeArgument = Annotated[
    str,
    typer.Argument(
        metavar="NODE",
        help="A node of the lab, such as rtsw1.",
        autocompletion=complete_node,
        show_default=False,
    ),
]


FileOption = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="FILE", help="Where to write; stdout by default."),
]
ResultsOption = Annotated[Path | None, results_option()]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite existing output.")]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        "--network",
        metavar="NAME",
        help="Of a lab with several networks, which one: the first of the file by default.",
        autocompletion=complete_network,
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON for programs.")]


def file_of(text: str, catalog: Catalog) -> Path:
    """The file that a command line calls `text`; if it is the user's own, a note goes to stderr.
    Raises InputError if there is none."""
    from rocelab.labfile.catalog import find

    note_own(text, catalog)
    return find(text, catalog)


def note_own(text: str, catalog: Catalog, tree: Path = Path()) -> None:
    """Note on stderr which file a name refers to, if it is the user's own."""
    from rocelab.labfile.catalog import own_file, shipped_names
    from rocelab.report.console import note

    path = own_file(text, catalog, tree)
    if path is not None:
        other = ", not the one that ships" if text in shipped_names(catalog) else ""
        note(f"{catalog.kind} {text} is {path}{other}")


def lab_file(text: str) -> Path:
    """The file of the lab that a command line calls `text`, as `file_of` finds it."""
    from rocelab.labfile.catalog import LABS

    return file_of(text, LABS)


def planned(text: str) -> Fabric:
    """What a lab means, by its file or name. Loads nothing of what makes labs.

    Raises InputError, and SpecError with every problem of the file.
    """
    from rocelab.labfile.load import load
    from rocelab.planning.build import plan

    return plan(load(lab_file(text)))


def running_lab(text: str | None) -> RunningLab:
    """The running lab of that name or file; without text the only one that is up.

    Raises InputError if it is not up, or if there is none or more than one to choose from.
    """
    from rocelab.base.errors import InputError
    from rocelab.lab.lab import RunningLab
    from rocelab.lab.status import Presence, known_labs
    from rocelab.record import left_behind, made_nodes, not_up

    if text is None:
        names = [lab.name for lab in known_labs() if lab.state is Presence.RUNNING]
        if not names:
            left = [lab.name for lab in known_labs()]
            raise (
                not_up(left[0])
                if left
                else InputError("no lab is up", hint="bring one up with `rocelab up LAB`")
            )
        if len(names) > 1:
            raise InputError(
                f"{len(names)} labs are up: {', '.join(names)}", hint="name one of them"
            )
        text = names[0]
    lab = RunningLab.open(text)
    if not lab.fabric.is_adopted and made_nodes(lab.runtime.files) == 0:
        raise left_behind(lab.name)
    if text != lab.name:
        _note_changes(text, lab)
    return lab


def _note_changes(text: str, lab: RunningLab) -> None:
    """Note on stderr if the lab's file differs from the running lab."""
    from rocelab.base.errors import InputError
    from rocelab.lab.lab import as_it_runs
    from rocelab.labfile.load import load_spec
    from rocelab.labfile.model import differing_keys
    from rocelab.report.console import note

    as_was = f"this is lab {lab.name} as it was brought up"
    try:
        spec = load_spec(lab_file(text))
    except InputError:
        note(f"{text} has errors now (`rocelab plan {text}` lists them); {as_was}")
        return
    if differing_keys(as_it_runs(spec), lab.fabric.spec):
        note(f"{text} differs from what runs; {as_was}")


def running_or_planned(text: str, frr: Path | None = None) -> Lab | RunningLab:
    """The lab of that name or file as it runs, or else as its file plans it.

    `frr` is the folder of an FRR to use instead of this machine's. Raises InputError, also if the
    lab is up with another FRR, and SpecError with every problem of the file.
    """
    from rocelab.lab.lab import Lab
    from rocelab.lab.names import name_of
    from rocelab.lab.providers import provider_of
    from rocelab.record import State, read_record

    record = read_record(name_of(text))
    if record is not None and record.state is State.RUNNING:
        lab = running_lab(text)
        lab.check_frr(frr)
        return lab
    return Lab.planned(lab_file(text), provider_of(frr=frr))


def switch_of(lab: RunningLab, name: str) -> Node:
    """The switch of that name. Raises InputError for a server and for a missing node."""
    from rocelab.base.errors import InputError

    node = lab.fabric.node(lab.node(name).name)
    if not node.is_switch:
        some = ", ".join(switch.name for switch in lab.fabric.switches[:4])
        raise InputError(
            f"{name} is a server and runs no routing daemon", hint=f"switches are {some} ..."
        )
    return node
