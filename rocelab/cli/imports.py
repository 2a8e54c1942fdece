"""`rocelab import`: a lab file from the shape of a topology that others drew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import FileOption, ForceOption
from rocelab.report.console import note, say, write

if TYPE_CHECKING:
    from rocelab.render.imported import Imported
    from rocelab.spec.fabrics import ClosSpec

_SHOWN = 12


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
) -> None:
    """Write a lab file for the Clos of a topology, or say which part of it is not a Clos.

    Addresses, ASNs and policy are rocelab's own; the command lists where the bound FRR
    configurations differ. `rocelab adopt` takes a running lab as it is.
    """
    from rocelab.outputs import check_new_file, create_file
    from rocelab.plan.shape import clos_in
    from rocelab.render.imported import read_topology

    if file is not None:
        check_new_file(file, overwrite=force)
    imported = read_topology(topology)
    text = lab_text(imported, clos_in(imported.drawn), topology)
    if file is None:
        write([text])
    else:
        with create_file(file, overwrite=force) as opened:
            opened.write(text.encode())
        say(f"the lab of {topology} is in {file}")
    _note_the_rest(imported)


def lab_text(imported: Imported, fabric: ClosSpec, topology: Path) -> str:
    """The lab file."""
    from rocelab.spec.base import safe_name
    from rocelab.spec.source import written
    from rocelab.wording import printable

    joined = ("atsws", "links_per_atsw") if fabric.atsws == 0 else ()
    keys = fabric.model_dump(exclude={"zones", *joined} if fabric.zones == 1 else {*joined})
    body = {"name": safe_name(imported.name) or "imported", "fabric": keys}
    shape = f"# The shape of {printable(topology.name)}"
    head = f"{shape}; addresses and ASNs are planned here: `rocelab plan`.\n\n"
    return head + written(body)


def _note_the_rest(imported: Imported) -> None:
    """Note on stderr what the nodes are configured with there."""
    configurations = {name: lines for name, lines in imported.configured.items() if lines}
    for name, lines in list(configurations.items())[:_SHOWN]:
        note(f"not imported, {name}: {', '.join(lines)}")
    if len(configurations) > _SHOWN:
        note(f"not imported: the configurations of {len(configurations) - _SHOWN} more nodes")
