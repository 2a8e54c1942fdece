"""`rocelab import`: a lab file from the shape of a topology that others drew."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rocelab.cli.arguments import FileOption, ForceOption
from rocelab.report.console import note, say, write

if TYPE_CHECKING:
    from rocelab.fabrics.kinds.clos import ClosSpec
    from rocelab.importing.topology import ImportedTopology
    from rocelab.planning.shape import DrawnGraph

_SHOWN = 6
_STATEMENTS = 3
_LONGEST = 100


def import_topology(
    topology: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A list of cables (.csv: a_node, a_port, b_node, b_port, rate), a drawing of "
            "graphviz (.dot), a config_db.json of SONiC or a folder of them, a folder of LLDP "
            "neighbours as JSON, a topology of containerlab (mine.clab.yml), or of netlab as JSON "
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
            "may be a pattern such as 'l*'. Can be repeated; the last one decides.",
            show_default=False,
        ),
    ] = None,
    servers: Annotated[
        int,
        typer.Option(
            "--servers",
            metavar="N",
            min=0,
            max=16,
            help="If SOURCE has no servers, add so many to each leaf.",
        ),
    ] = 0,
    graph: Annotated[
        bool,
        typer.Option(
            "--graph",
            help="Write every node and link, with ports and numbers, also where SOURCE is a Clos.",
        ),
    ] = False,
) -> None:
    """Write a lab file for the network that other tools describe.

    The command says what it takes each node for, and what it did not take. A topology of
    containerlab or netlab that is a regular Clos becomes the short form, with addresses and AS
    numbers of rocelab's own. `rocelab adopt` takes a running lab as it is.

    rocelab import cables.csv --servers 2 -o mine.yaml

    rocelab import switches/ --role 'bl*=core'
    """
    from rocelab.base.outputs import output_file
    from rocelab.importing.readers import read_topology
    from rocelab.labfile.base import safe_name

    target = None if file is None else output_file(file, overwrite=force)
    imported = read_topology(topology, os.environ)
    name = safe_name(imported.name) or "imported"
    text, notes = _lab(name, imported, topology, role or (), servers, as_graph=graph)
    if target is None:
        write([text])
    else:
        target.write(text)
        say(f"the lab of {topology} is in {file}: `rocelab up {file}`")
    if name != imported.name:
        note(f"the lab is called {name}: {imported.name} is no name of a lab")
    for line in notes:
        note(line)
    _report_configuration(imported)


def _lab(
    name: str,
    imported: ImportedTopology,
    source: Path,
    options: Sequence[str],
    servers: int,
    *,
    as_graph: bool,
) -> tuple[str, list[str]]:
    """The text of a lab, and what was decided for it. Raises InputError for what is neither."""
    from rocelab.base.errors import InputError
    from rocelab.importing.roles import drawn_of
    from rocelab.planning.shape import clos_in

    if as_graph or servers or imported.is_graph:
        return _graph(name, imported, source, options, servers)
    drawn, left_out = drawn_of(imported, options)
    try:
        clos = clos_in(drawn)
    except InputError as error:
        text, notes = _graph(name, imported, source, options, servers)
        return text, [f"{error.message}: it is written as a graph", *notes]
    return lab_text(name, clos, source), list(_node_lines(drawn, (*imported.left_out, *left_out)))


def _graph(
    name: str, imported: ImportedTopology, source: Path, options: Sequence[str], servers: int
) -> tuple[str, list[str]]:
    from rocelab.base.quantities import rate
    from rocelab.base.wording import counted, printable
    from rocelab.importing.labs import graph_lab, guesses, located
    from rocelab.labfile.load import validate
    from rocelab.labfile.model import LabSpec
    from rocelab.labfile.source import written

    lab = graph_lab(name, imported, options, servers)
    text = f"# The network of {printable(source.name)}; `rocelab plan` shows what it means.\n\n"
    text += written(lab.body)
    spec = validate(located(lab, text, printable(str(source))), LabSpec)
    notes = [f"guessed to be {role}: {_excerpt(nodes)} (--role)" for role, nodes in guesses(lab)]
    if lab.renamed:
        pairs = [f"{node} is {name}" for node, name in lab.renamed.items()]
        notes.append(f"renamed: {_excerpt(pairs)}")
    if lab.added:
        notes.append(f"added: {counted(len(lab.added), 'server')}, {_excerpt(lab.added)}")
    if lab.unrated:
        default = rate(spec.links.rate)
        many = counted(lab.unrated, "link")
        notes.append(
            f"no rate: {many} at {default}, until links.rate and server_rate say otherwise"
        )
    if "server" not in lab.roles.values():
        notes.append("the lab has no servers: traffic needs some, see --servers")
    if lab.left_out:
        notes.append(f"left out: {_excerpt(lab.left_out)}")
    return text, notes


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


def _node_lines(drawn: DrawnGraph, left_out: Sequence[str]) -> Iterator[str]:
    """What each node was taken for, and what was left out."""
    from rocelab.importing.roles import TIER_NAMES

    for tier, name in enumerate(TIER_NAMES):
        if nodes := drawn.of_tier(tier):
            yield f"taken as {name}: {_excerpt(nodes)}"
    if left_out:
        yield f"left out: {_excerpt(left_out)}"


def _report_configuration(imported: ImportedTopology) -> None:
    """Note on stderr what the nodes are configured with there, summed up by what it is about."""
    from rocelab.importing.policy import kind_of

    by_kind: dict[str, dict[str, list[str]]] = {}
    for node, statements in imported.configured.items():
        for statement in statements:
            by_kind.setdefault(kind_of(statement), {}).setdefault(node, []).append(statement)
    for nodes in by_kind.values():
        said = list(dict.fromkeys(text for texts in nodes.values() for text in texts))
        note(f"not imported, {_excerpt(list(nodes))}: {_excerpt(said, _STATEMENTS)}")
    every = chain.from_iterable(imported.configured.values())
    if any(statement.startswith("router ") for statement in every):
        note(
            "FRR's files run as they are in the lab of --graph, with a line such as "
            "`routing: {config: 'configs/{node}.conf'}`"
        )


def _excerpt(texts: Sequence[str], most: int = _SHOWN) -> str:
    """The first of many, none longer than a line."""
    from rocelab.base.wording import printable

    cut = [text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..." for text in texts[:most]]
    more = [f"and {len(texts) - most:,} more"] if len(texts) > most else []
    return ", ".join([*map(printable, cut), *more])
