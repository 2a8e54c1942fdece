"""`rocelab import`: a lab file from the shape of a topology that others drew."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import FileOption, ForceOption
from rocelab.report.console import note, say, write

if TYPE_CHECKING:
    from rocelab.fabrics.kinds.clos import ClosSpec
    from rocelab.planning.shape import DrawnGraph
    from rocelab.render.import_roles import ImportedTopology

_SHOWN = 6
_STATEMENTS = 3
_LONGEST = 100


def import_topology(
    topology: Annotated[
        Path,
        typer.Argument(
            metavar="TOPOLOGY",
            help="A topology of containerlab (mine.clab.yml), or of netlab as JSON "
            "(`netlab create -o json`).",
            show_default=False,
        ),
    ],
    file: FileOption = None,
    force: ForceOption = False,
    role: Annotated[
        list[str] | None,
        typer.Option(
            "--role",
            metavar="NODE=ROLE",
            help="The role of a node: server, leaf, spine or core, or none to leave it out. NODE "
            "may "
            "be a pattern such as 'l*'. Can be repeated; the last one decides.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write a lab file for the Clos of a topology, or report which part of it is not a Clos.

    The command says what it takes each node for, and asks for --role where the file leaves it open.
    Addresses, ASNs and policy are rocelab's own; the command lists what the bound FRR
    configurations say of them. `rocelab adopt` takes a running lab as it is.
    """
    from rocelab.base.outputs import output_file
    from rocelab.labfile.base import safe_name
    from rocelab.planning.shape import clos_in
    from rocelab.render.import_roles import drawn_of
    from rocelab.render.imported import read_topology

    target = None if file is None else output_file(file, overwrite=force)
    imported = read_topology(topology, os.environ)
    drawn, left_out = drawn_of(imported, role or ())
    name = safe_name(imported.name) or "imported"
    text = lab_text(name, clos_in(drawn), topology)
    if target is None:
        write([text])
    else:
        target.write(text)
        say(f"the lab of {topology} is in {file}")
    if name != imported.name:
        note(f"the lab is called {name}: {imported.name} is no name of a lab")
    _note_the_nodes(drawn, (*imported.left_out, *left_out))
    _note_the_rest(imported)


def lab_text(name: str, fabric: ClosSpec, topology: Path) -> str:
    """The lab file."""
    from rocelab.base.wording import printable
    from rocelab.labfile.source import written

    joined = ("atsws", "links_per_atsw") if fabric.atsws == 0 else ()
    keys = fabric.model_dump(exclude={"zones", *joined} if fabric.zones == 1 else {*joined})
    body = {"name": name, "fabric": keys}
    shape = f"# The shape of {printable(topology.name)}"
    head = f"{shape}; addresses and ASNs are planned here: `rocelab plan`.\n\n"
    return head + written(body)


def _note_the_nodes(drawn: DrawnGraph, left_out: Sequence[str]) -> None:
    """Note on stderr what each node was taken for, and what was left out."""
    from rocelab.render.import_roles import TIER_NAMES

    for tier, name in enumerate(TIER_NAMES):
        if nodes := drawn.of_tier(tier):
            note(f"taken as {name}: {_some(nodes)}")
    if left_out:
        note(f"left out: {_some(left_out)}")


def _note_the_rest(imported: ImportedTopology) -> None:
    """Note on stderr what the nodes are configured with there, summed up by what it is about."""
    from rocelab.render.import_policy import kind_of

    by_kind: dict[str, dict[str, list[str]]] = {}
    for node, statements in imported.configured.items():
        for statement in statements:
            by_kind.setdefault(kind_of(statement), {}).setdefault(node, []).append(statement)
    for nodes in by_kind.values():
        said = list(dict.fromkeys(text for texts in nodes.values() for text in texts))
        note(f"not imported, {_some(list(nodes))}: {_some(said, _STATEMENTS)}")


def _some(texts: Sequence[str], most: int = _SHOWN) -> str:
    """The first of many, none longer than a line."""
    from rocelab.base.wording import printable

    cut = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for text in texts[:most]]
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return ", ".join([*map(printable, cut), *more])
