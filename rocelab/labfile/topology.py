"""Reads the topology file of a lab of containerlab's, as containerlab reads it.

Environment variables are expanded first (`rocelab.labfile.variables`). Every scalar is then its
text, as Go's decoder fills fields of text: a node may be called 1, a lab 2026. Merge keys are
followed. The result is the parser's own tree, which knows the line of everything; a reader asks for
what it needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import yaml

from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import read_input
from rocelab.base.wording import printable, shown
from rocelab.labfile.source import raise_problems, read_text, syntax_problem
from rocelab.labfile.variables import TooLongError, UnclosedError, expand

MAX_FILE_BYTES = 8 * 2**20
MAX_DEPTH = 64
_NOTHING = frozenset(("", "~", "null", "Null", "NULL"))
_NULL, _MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"
_TEMPLATE = re.compile(r"\{\{")
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffc\U00010000-\U0010ffff]")
_START = "name a file such as mine.clab.yml"


class TopologyFile:
    """A topology file, and the problems that were found in it so far."""

    def __init__(self, path: Path, environment: Mapping[str, str]) -> None:
        """Raises SpecError for a file that cannot be read, is a Go template, or is not YAML."""
        self.file = printable(str(path))
        self.problems: list[Problem] = []
        self._merged: dict[int, dict[str, yaml.Node] | None] = {}
        text = read_text(path, self.file, MAX_FILE_BYTES)
        if template := _TEMPLATE.search(text):
            line = text.count("\n", 0, template.start()) + 1
            hint = "write out the topology that containerlab makes of it, and name that file"
            raise SpecError([Problem(self.file, line, "", "this file is a Go template", hint)])
        try:
            text = expand(text, environment)
        except UnclosedError as error:
            message, hint = "${ is not closed on its line", "close it, or write $${ for a plain ${"
            raise SpecError([Problem(self.file, error.line, "", message, hint)]) from None
        except TooLongError as error:
            raise SpecError([Problem(self.file, None, "", str(error), _START)]) from None
        self.root = self._composed(text)

    def _composed(self, text: str) -> yaml.Node | None:
        try:
            depth = 0
            for event in yaml.parse(text, Loader=yaml.CSafeLoader):
                depth += isinstance(event, yaml.CollectionStartEvent)
                depth -= isinstance(event, yaml.CollectionEndEvent)
                if depth > MAX_DEPTH:
                    message = f"nested deeper than the limit of {MAX_DEPTH} levels"
                    line = event.start_mark.line + 1 if event.start_mark else None
                    raise SpecError([Problem(self.file, line, "", message, _START)])
            root: yaml.Node | None = yaml.compose(text, Loader=yaml.CSafeLoader)
        except yaml.YAMLError as error:
            raise SpecError([syntax_problem(error, self.file, text)]) from None
        return root

    def note(self, node: yaml.Node | None, message: str, hint: str | None = None) -> None:
        """Keep a problem at the line of `node`."""
        line = node.start_mark.line + 1 if node is not None and node.start_mark else None
        self.problems.append(Problem(self.file, line, "", message, hint))

    def check(self) -> None:
        """Raises SpecError if there is a problem."""
        if self.problems:
            raise_problems(self.problems)

    def fields(self, node: yaml.Node | None, what: str) -> dict[str, yaml.Node]:
        """The keys of a block with their values, none for nothing; `what` the block is."""
        if is_null(node):
            return {}
        if not isinstance(node, yaml.MappingNode):
            self.note(node, f"{what} is {_node_text(node)}, expected a block of keys")
            return {}
        if id(node) not in self._merged:
            self._merged[id(node)] = None
            self._merged[id(node)] = self._fields(node, what)
        fields = self._merged[id(node)]
        if fields is None:
            self.note(node, f"{what} merges itself")
        return fields or {}

    def _fields(self, node: yaml.MappingNode, what: str) -> dict[str, yaml.Node]:
        fields: dict[str, yaml.Node] = {}
        merged: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.tag == _MERGE:
                several = value.value if isinstance(value, yaml.SequenceNode) else [value]
                for one in several:
                    merged = {**self.fields(one, f"what {what} merges"), **merged}
            elif not isinstance(key, yaml.ScalarNode):
                self.note(key, f"{what} has a key that is no text")
            elif key.value in fields:
                first = fields[key.value].start_mark
                at = f"; the first is on line {first.line + 1}" if first else ""
                self.note(key, f"{what} has {shown(key.value)} twice{at}", "keep one of them")
            else:
                fields[key.value] = value
        return {**merged, **fields}

    def items(self, node: yaml.Node | None, what: str) -> list[yaml.Node]:
        """The items of a list, none for nothing; `what` the list is."""
        if is_null(node):
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.note(node, f"{what} is {_node_text(node)}, expected a list")
            return []
        return list(node.value)

    def text(self, node: yaml.Node | None, what: str) -> str:
        """The text of a scalar, empty for nothing; `what` it is."""
        if is_null(node):
            return ""
        if not isinstance(node, yaml.ScalarNode):
            self.note(node, f"{what} is {_node_text(node)}, expected text")
            return ""
        return str(node.value)


def is_null(node: yaml.Node | None) -> bool:
    """Whether there is no value."""
    return node is None or node.tag == _NULL


def _node_text(node: yaml.Node | None) -> str:
    match node:
        case yaml.MappingNode():
            return "a block of keys"
        case yaml.SequenceNode():
            return "a list"
        case yaml.ScalarNode():
            return f"the text {shown(node.value)}"
        case _:
            return "nothing"


def topology_name(path: Path, environment: Mapping[str, str]) -> str:
    """The name of the lab in a topology file, empty if it has none. Nothing else in the file
    matters. Raises OSError for one that cannot be read, TooLongError."""
    text = read_input(path, MAX_FILE_BYTES).decode("utf-8-sig", errors="replace")
    text = _UNREADABLE.sub("?", text)
    try:
        return _top_scalar(expand(text, environment), "name")
    except UnclosedError:
        name = _top_scalar(text, "name")
    try:
        return expand(name, environment)
    except UnclosedError:
        return name


def _top_scalar(text: str, key: str) -> str:
    """The text at a key at the top of YAML text, as far as that is YAML; empty if there is none."""
    depth, children, last = 0, 0, ""
    anchors: dict[str, str] = {}
    for event in _readable(text):
        if isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
            continue
        value = ""
        if isinstance(event, yaml.ScalarEvent):
            value = "" if event.implicit[0] and event.value in _NOTHING else event.value
            if event.anchor:
                anchors[event.anchor] = value
        elif isinstance(event, yaml.AliasEvent):
            value = anchors.get(str(event.anchor), "")
        elif not isinstance(event, yaml.CollectionStartEvent):
            continue
        if depth == 1:
            children += 1
            if children % 2 == 0 and last == key:
                return value
            last = value
        depth += isinstance(event, yaml.CollectionStartEvent)
    return ""


def _readable(text: str) -> Iterator[yaml.Event]:
    """The events of YAML text up to the first error."""
    with suppress(yaml.YAMLError):
        yield from yaml.parse(text, Loader=yaml.CSafeLoader)
