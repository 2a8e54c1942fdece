"""`rocelab adopt` and `rocelab release`: labs that containerlab deployed, and back."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.base.quantities import Unit
from rocelab.cli.arguments import JsonOption, RunningLabArgument
from rocelab.linux.rights import need_root
from rocelab.report.console import progress_bars, say, show_blocks, write_json
from rocelab.report.document import Column, Table, columns

if TYPE_CHECKING:
    from rocelab.planning.fabric import Fabric


def adopt(
    lab: Annotated[
        str,
        typer.Argument(
            metavar="TOPOLOGY|LAB",
            help="A lab that containerlab deployed: its topology file, or its name.",
            show_default=False,
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Adopt a lab that containerlab deployed: faults, traffic, health and drills then work on it.

    Only faults change it, and they are undone. `rocelab release` gives it back.
    """
    from rocelab.lab.adoption.adopt import adopt as adopt_lab
    from rocelab.planning.build import plan

    need_root("adopting a lab")
    with progress_bars() as progress:
        adopted = adopt_lab(lab, progress)
    fabric = plan(adopted.spec)
    if json:
        write_json(
            {
                "lab": adopted.name,
                "nodes": [
                    {
                        "name": node.name,
                        "role": node.role.name,
                        "daemons": list(_daemons(fabric, node.name)),
                        "sessions": sum(
                            node.name in (link.a.node, link.b.node) for link in fabric.sessions
                        ),
                        "routes": len(_routes(fabric, node.name)),
                    }
                    for node in fabric.nodes
                ],
                "links": [[str(link.a), str(link.b)] for link in fabric.links],
                "notes": list(adopted.notes),
            }
        )
        return
    for text in adopted.notes:
        say(f"note: {text}")
    _print_fabric(fabric)
    say(
        f"lab {fabric.name} is adopted: {len(fabric.switches):,} switches, "
        f"{len(fabric.servers):,} servers, {len(fabric.links):,} links, "
        f"{len(fabric.sessions):,} BGP sessions"
    )


def _print_fabric(fabric: Fabric) -> None:
    links = Counter(end.node for link in fabric.links for end in (link.a, link.b))
    sessions = Counter(end.node for link in fabric.sessions for end in (link.a, link.b))
    head = (
        *columns(Unit.TEXT, "node", "role"),
        Column("links", Unit.COUNT),
        Column("daemons"),
        *columns(Unit.COUNT, "sessions", "routes"),
    )
    rows = tuple(
        (
            node.name,
            node.role.name,
            links[node.name],
            " ".join(_daemons(fabric, node.name)),
            sessions[node.name],
            len(_routes(fabric, node.name)),
        )
        for node in fabric.nodes
    )
    show_blocks(Table("", head, rows))


def _daemons(fabric: Fabric, node: str) -> tuple[str, ...]:
    assert fabric.observed is not None
    return fabric.observed.daemons.get(node, ())


def _routes(fabric: Fabric, node: str) -> tuple[str, ...]:
    assert fabric.observed is not None
    return tuple(fabric.observed.routes.get(node, {}))


def release(lab: RunningLabArgument) -> None:
    """Release an adopted lab: clear its faults and forget it. The lab stays up."""
    from rocelab.faults.running import release as release_lab
    from rocelab.lab.names import name_of

    need_root("giving a lab back")
    name = name_of(lab)
    undone = release_lab(lab)
    for fault in undone:
        say(f"undid {fault.kind} of {fault.subject}")
    say(f"lab {name} is released: it stays up, as it was")
