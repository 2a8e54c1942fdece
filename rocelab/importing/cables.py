"""A list of cables as a topology: a CSV, or a drawing of graphviz's language.

A cable may be listed twice, from each of its ends; it is taken once. Columns may have the names of
others: `Source Device`, `A-side port`, `side_b_name`, `Speed`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from rocelab.base.errors import Problem
from rocelab.base.wording import counted
from rocelab.importing.topology import DrawnEnd, DrawnLink, DrawnNode, ImportedTopology
from rocelab.labfile.cables import CABLES, read_cables
from rocelab.labfile.source import raise_problems
from rocelab.labfile.table import further_columns


def read_cable_list(path: Path) -> ImportedTopology:
    """The topology of a list of cables. Raises SpecError."""
    form = replace(CABLES, is_open=True, column_of=column_of)
    source = read_cables(path, form)
    rows = source.data["links"]
    assert isinstance(rows, list)
    listed: list[DrawnLink] = []
    left_out: list[str] = []
    for index, row in enumerate(rows):
        line = source.line(("links", index))
        if isinstance(row, dict) and "a" in row and "b" in row:
            listed.append(_link(row, line))
        else:
            left_out.append(f"line {line} (it does not name two nodes)")
    links = _once(listed, source.file)
    if len(links) < len(listed):
        twice = counted(len(listed) - len(links), "cable")
        left_out.append(f"{twice} that the list has already")
    names = dict.fromkeys(end[0] for link in links for end in (link.a, link.b))
    nodes = {name: DrawnNode(None, "has cables, and no role") for name in names}
    is_table = path.suffix.lower() == ".csv"
    columns = further_columns(path, form) if is_table else ()
    left_out += [f"column {name}" for name in columns]
    return ImportedTopology(path.stem, nodes, links, left_out, is_graph=True)


_ENDS = {
    "a": {"a", "aside", "source", "src", "from", "local", "near"},
    "b": {"b", "z", "bside", "zside", "destination", "dest", "dst", "to", "remote", "far"}
    | {"peer", "neighbor", "neighbour", "target"},
}
_NODES = {"node", "device", "host", "hostname", "switch", "system", "sysname", "name", ""}
_PORTS = {"port", "interface", "intf", "iface", "ifname", "if", "int", "portid"}
_RATES = {"rate", "speed", "bandwidth"}
_NO_MEANING = {"side", "end", "id", "link", "cable"}


def column_of(name: str) -> str:
    """The column of a list of cables that others call `name`; a name that says none is kept."""
    text = name.strip()
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    if text in CABLES.columns or not words:
        return text
    if len(words) == 1 and words[0] in _RATES:
        return "rate"
    end = next((end for end, names in _ENDS.items() if names & {*words}), None)
    if end is None:
        return text
    rest = [word for word in words if word not in _ENDS[end] and word not in _NO_MEANING]
    what = rest[-1] if rest else ""
    if what in _PORTS or (what == "name" and words[0] == "side"):
        return f"{end}_port"
    return f"{end}_node" if what in _NODES else text


def _link(row: Mapping[str, object], line: int | None) -> DrawnLink:
    rate, mtu, delay = (row.get(key) for key in ("rate", "mtu", "delay"))
    return DrawnLink(
        _end(str(row["a"])),
        _end(str(row["b"])),
        None if rate is None else str(rate),
        mtu if isinstance(mtu, int) else None,
        None if delay is None else str(delay),
        line=line,
    )


def _once(links: Iterable[DrawnLink], file: str) -> list[DrawnLink]:
    """The links, each cable once. Raises SpecError if a cable has two rates, MTUs or delays."""
    cables: dict[object, DrawnLink] = {}
    problems: list[Problem] = []
    for link in links:
        has_ports = link.a[1] is not None and link.b[1] is not None
        ends: object = frozenset((link.a, link.b)) if has_ports else link
        first = cables.setdefault(ends, link)
        for key in ("rate", "mtu", "delay"):
            before, here = getattr(first, key), getattr(link, key)
            if here is None or here == before:
                continue
            if before is None:
                cables[ends] = first = replace(first, **{key: here})
                continue
            message = f"the cable of line {first.line} again, which has {key} {before}, not {here}"
            problems.append(Problem(file, link.line, key, message, "remove one of the lines"))
    if problems:
        raise_problems(problems)
    return list(cables.values())


def _end(text: str) -> DrawnEnd:
    node, _, port = text.partition(":")
    return node, port or None
