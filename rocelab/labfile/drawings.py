"""Reads a drawing of graphviz's language as a list of cables."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pydot

from rocelab.base.errors import Problem, SpecError
from rocelab.base.wording import KeyPath
from rocelab.labfile.source import MAX_FILE_BYTES, Data, YamlSource, read_text

MOST_EDGES = 2**17
_ID = r'(?:"[^"]*"|[^\s;{}\[\]"-])+'
_EDGE = re.compile(rf"({_ID})\s*-[->]\s*(?=({_ID}))")
"""Matches an edge up to its far end, so that the next edge of a chain may begin there."""
_COMPASS = frozenset(("n", "ne", "e", "se", "s", "sw", "w", "nw", "c", "_"))


def read_drawing(path: Path) -> YamlSource:
    """The links of a drawing, each with its line. Raises SpecError."""
    file = str(path)
    text = read_text(path, file, MAX_FILE_BYTES)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()) as printed:
            # pydot 4 calls pyparsing by names that pyparsing will drop.
            warnings.simplefilter("ignore", DeprecationWarning)
            graphs = pydot.graph_from_dot_data(text)
    except Exception as error:  # pydot lets its grammar's own errors through
        graphs = None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    else:
        reason = "its grammar is not graphviz's"
    if not graphs:
        # pydot prints where its grammar stopped.
        place = re.search(r"line:(\d+)", printed.getvalue())
        line = int(place[1]) if place else None
        raise SpecError([Problem(file, line, "", f"not a drawing of graphviz: {reason}")])
    edges = list(_edges(graphs[0]))
    if len(edges) > MOST_EDGES:
        raise SpecError([Problem(file, None, "", f"more than {MOST_EDGES:,} edges")])
    line_of = _lines_of_edges(text)
    ends = [(str(edge["a"]), str(edge["b"])) for edge in edges]
    lines: dict[KeyPath, int] = {("links",): 1}
    lines |= {("links", n): line_of[pair] for n, pair in enumerate(ends) if pair in line_of}
    return YamlSource(file, {"links": list[Data](edges)}, lines)


def _edges(graph: pydot.Graph) -> Iterator[dict[str, Data]]:
    for edge in graph.get_edges():
        attributes: dict[str, Data] = {}
        for key in ("rate", "speed", "mtu", "delay"):
            value = edge.get(key)
            if value is not None:
                plain = str(value).strip('"')
                is_number = key == "mtu" and plain.isdecimal()
                attributes["rate" if key == "speed" else key] = int(plain) if is_number else plain
        for a in _ends_of(edge.get_source()):
            for b in _ends_of(edge.get_destination()):
                yield {"a": a, "b": b, **attributes}
    for part in graph.get_subgraphs():
        yield from _edges(part)


def _ends_of(end: object) -> list[str]:
    """`leaf1:swp51` of `"leaf1":"swp51"`, of `leaf1:swp51:n` and of `"leaf1:swp51"`; of a group in
    braces all its nodes."""
    if isinstance(end, Mapping):
        return [_plain(name) for name in end.get("nodes", ())]
    return [_plain(str(end))]


def _plain(text: str) -> str:
    parts = text.replace('"', "").split(":")
    if len(parts) == 3 and parts[2] in _COMPASS:
        parts = parts[:2]
    return ":".join(parts)


def _lines_of_edges(text: str) -> dict[tuple[str, str], int]:
    """The line of each edge between two nodes by its ends, for messages: pydot gives none, and has
    the edges of subgraphs last."""
    lines: dict[tuple[str, str], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for a, b in _EDGE.findall(line):
            lines.setdefault((_plain(a), _plain(b)), number)
    return lines
