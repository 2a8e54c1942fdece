"""Reads a list of cables: a CSV with a line for each, or a drawing of graphviz's language.

The columns of a CSV are `a_node`, `a_port`, `b_node`, `b_port`, and what a cable has of its own:
`rate`, `mtu`, `delay`, `queues`. An edge of a drawing is `"leaf1":"swp51" -- "spine1":"swp1"`, as
validators of cabling have it, with the same attributes. The result is the links of a fabric of kind
`graph`.
"""

from __future__ import annotations

from pathlib import Path

from rocelab.labfile.references import Content, FileReference, Naming
from rocelab.labfile.source import Data, YamlSource
from rocelab.labfile.table import TableFormat, read_table

MOST_CABLES = 2**17
_ENDS = ("a_node", "b_node")
CABLES = TableFormat(
    "links",
    "cables",
    dict.fromkeys(_ENDS, True)
    | dict.fromkeys(("a_port", "b_port", "rate", "mtu", "delay", "queues"), False),
    MOST_CABLES,
    texts=frozenset((*_ENDS, "a_port", "b_port", "rate", "delay", "queues")),
)


def read_cables(path: Path, form: TableFormat = CABLES) -> YamlSource:
    """The links in a list of cables, each with its line. Raises SpecError."""
    if path.suffix.lower() in (".dot", ".gv"):
        # Here and not above: only drawings need its grammar.
        from rocelab.labfile.drawings import read_drawing

        return read_drawing(path)
    source = read_table(path, form)
    rows = source.data["links"]
    assert isinstance(rows, list)
    links: list[Data] = [_link(row) for row in rows if isinstance(row, dict)]
    return YamlSource(source.file, {"links": links}, source.lines)


def _link(row: dict[str, Data]) -> dict[str, Data]:
    link = {key: value for key, value in row.items() if not key.endswith(("_node", "_port"))}
    for end in ("a", "b"):
        node, port = row.get(f"{end}_node"), row.get(f"{end}_port")
        if node is not None:
            link[end] = node if port is None else f"{node}:{port}"
    return link


def _cables(naming: Naming) -> Content | None:
    if not isinstance(naming.value, str):
        return None
    source = read_cables(naming.folder / naming.value)
    lines = {path[1:]: line for path, line in source.lines.items() if path}
    return Content(source.data["links"], source.file, lines)


CABLE_LISTS = (FileReference(("fabric", "cables"), _cables, ("links",)),)
"""The list of cables that a lab's file names, whose links follow those that it has itself."""
