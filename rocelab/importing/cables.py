"""A list of cables as a topology: a CSV, or a drawing of graphviz's language."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from rocelab.importing.topology import DrawnEnd, DrawnLink, DrawnNode, ImportedTopology
from rocelab.labfile.cables import CABLES, read_cables
from rocelab.labfile.table import further_columns


def read_cable_list(path: Path) -> ImportedTopology:
    """The topology of a list of cables. Raises SpecError."""
    form = replace(CABLES, is_open=True)
    rows = read_cables(path, form).data["links"]
    assert isinstance(rows, list)
    links = [_link(row) for row in rows if isinstance(row, dict)]
    names = dict.fromkeys(end[0] for link in links for end in (link.a, link.b))
    nodes = {name: DrawnNode(None, "has cables, and no role") for name in names}
    is_table = path.suffix.lower() == ".csv"
    columns = further_columns(path, form) if is_table else ()
    left_out = [f"column {name}" for name in columns]
    return ImportedTopology(path.stem, nodes, links, left_out, is_graph=True)


def _link(row: Mapping[str, object]) -> DrawnLink:
    rate, mtu, delay = (row.get(key) for key in ("rate", "mtu", "delay"))
    return DrawnLink(
        _end(str(row["a"])),
        _end(str(row["b"])),
        None if rate is None else str(rate),
        mtu if isinstance(mtu, int) else None,
        None if delay is None else str(delay),
    )


def _end(text: str) -> DrawnEnd:
    node, _, port = text.partition(":")
    return node, port or None
