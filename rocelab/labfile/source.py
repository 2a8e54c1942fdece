"""Reads an untrusted YAML file to plain data with line numbers, and writes what it reads as such.

The result is the file's keys and values with the line of each, or a SpecError with every problem
found. Only text, numbers, true, false, lists and mappings are constructed, and aliases are counted
before they are followed, so every file is safe to read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import yaml

from rocelab.base.errors import Problem, SpecError
from rocelab.base.files import NotTextError, TooLargeError, read_input, text_of
from rocelab.base.wording import CONTROL, KeyPath, RefusedError, dotted, printable, shown
from rocelab.labfile.scalars import Scalar, read_scalar, unknown_tag

MAX_FILE_BYTES = 2**20
MAX_DEPTH = 20
MAX_VALUES = 200_000
"""The most values of one file, counted after aliases are expanded."""
MAX_PROBLEMS = 50

Data = Scalar | dict[str, "Data"] | list["Data"]

_MAP_TAGS = (None, "!", "tag:yaml.org,2002:map")
_LIST_TAGS = (None, "!", "tag:yaml.org,2002:seq")
# The characters that YAML 1.2 section 5.1 allows in a file.
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")

_TOO_DEEP = f"nested deeper than the limit of {MAX_DEPTH} levels"
_TOO_DEEP_FOR_PARSER = "exceeded maximum nesting depth"
"""libyaml since 0.2.6 has a limit of its own, which it may reach before its first event."""
_SIMPLER = "no lab or drill needs as much; is it the right file?"
_NO_ESCAPES = "text is shown on terminals and in reports; remove it"
_SYNTAX_HINTS = (
    ("undefined tag handle", "quote text that starts with !"),
    (
        "cannot start any token",
        "indent with spaces, not tabs, and quote text that starts with @, ` or %",
    ),
    (
        "mapping values are not allowed",
        "quote text that holds ': ', and line the keys of a block up",
    ),
    ("expected ',' or", "close the list or block that opens on line {opened}"),
    ("unexpected end of stream", "close the quote that opens on line {opened}"),
    ("expected key", "line the keys of a block up under each other"),
    ("expected '-'", "a block holds either '- ' items or keys, not both"),
    ("escape character", "use single quotes, or double the backslash"),
    ("expected ':'", "every key is followed by a colon and a space"),
    ("expected node content", "a value is missing here, or a [ or { before it is not closed"),
    ("<document start>", "remove what follows the end of the block"),
)


@dataclass(frozen=True, slots=True)
class YamlSource:
    """A parsed file: its name, its keys and values, and the line of each by key path.

    A value behind an alias has the lines of its anchor.
    """

    file: str
    data: dict[str, Data]
    lines: Mapping[KeyPath, int]
    files: Mapping[KeyPath, str] = field(default_factory=dict)
    """The other files that values were read from, by the key path of what each holds."""

    def file_of(self, path: KeyPath) -> str:
        """The file that holds the value at `path`."""
        return next(
            (self.files[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self.files),
            self.file,
        )

    def line(self, path: KeyPath) -> int | None:
        """The line of `path`, or of the nearest block around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def read_source(path: Path) -> YamlSource:
    """The keys and values of a YAML file.

    Raises SpecError with every problem: a file that cannot be read, is not UTF-8 text, exceeds the
    limits of this module, is not YAML, or has duplicate keys or keys that are not text.
    """
    file = printable(str(path))
    return parse_source(read_text(path, file), file)


def parse_source(text: str, file: str) -> YamlSource:
    """The keys and values of YAML text; `file` is its name in messages. Raises SpecError."""
    unprintable = _UNPRINTABLE.search(text)
    if unprintable:
        line = text.count("\n", 0, unprintable.start()) + 1
        _refuse(
            file,
            f"the control character U+{ord(unprintable[0]):04X} is not allowed in YAML",
            "remove it",
            line=line,
        )
    composer = _Composer(file)
    root = composer.compose(text)
    if composer.problems:
        raise_problems(composer.problems)
    if root is None or root.data is None:
        _refuse(
            file,
            "expected keys, the file is empty",
            "start from a copy of one that ships with the kit",
        )
    if not isinstance(root.data, dict):
        _refuse(
            file,
            f"expected keys at the top of the file, got {shown(root.data)}",
            "start from a copy of one that ships with the kit",
            line=root.line,
        )
    return YamlSource(file, root.data, dict(_lines(root, ())))


def written(data: Mapping[str, Any], *, width: int = 80) -> str:
    """YAML text that `parse_source` reads as `data`, with simple lists and blocks in a line of up
    to `width` characters."""
    return yaml.dump(
        data,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=width,
    )


class _Dumper(yaml.SafeDumper):
    """Quotes text that looks like a number in YAML 1.1, as every dumper of PyYAML, or in 1.2."""


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    try:
        is_read = read_scalar(text, None, plain=True) == text
    except RefusedError:
        is_read = False
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if is_read else "'")


_Dumper.add_representer(str, _represent_text)


def raise_problems(problems: Sequence[Problem], untold: int = 0) -> NoReturn:
    """Raise SpecError with the first 50 of `problems` by line, and how many more there are.

    `untold` counts further problems without a message.
    """
    ordered = sorted(problems, key=lambda problem: (problem.line or 0, problem.key))
    kept = ordered[:MAX_PROBLEMS]
    more = len(ordered) - len(kept) + untold
    if more:
        kept.append(Problem(ordered[0].file, None, "", f"and {more:,} more problems"))
    raise SpecError(kept)


def _refuse(file: str, message: str, hint: str | None = None, line: int | None = None) -> NoReturn:
    raise SpecError([Problem(file, line, "", message, hint)])


def read_text(path: Path, file: str, most_bytes: int = MAX_FILE_BYTES) -> str:
    """The text of a YAML file of at most `most_bytes`; `file` is its name in messages. Raises
    SpecError."""
    try:
        content = read_input(path, most_bytes)
    except FileNotFoundError:
        _refuse(file, "there is no such file", "check the path; `ls` shows what is there")
    except IsADirectoryError:
        _refuse(file, "expected a file, got a directory", "name the YAML file in it")
    except PermissionError:
        _refuse(file, "this user may not read it", "check the permissions with `ls -l`")
    except TooLargeError:
        _refuse(file, f"larger than the limit of {most_bytes:,} bytes", "is it the right file?")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        _refuse(file, f"it cannot be read: {reason}")
    try:
        return text_of(content)
    except NotTextError as error:
        _refuse(file, str(error), error.hint, line=error.line)


@dataclass(frozen=True, slots=True)
class _Node:
    """A value with its line and the depth of the values in it."""

    data: Data
    line: int
    height: int = 0
    children: Mapping[str | int, tuple[int, _Node]] = field(default_factory=dict)


class _Stop(Exception):  # noqa: N818 - control flow, not an error of its own
    """Nothing can be read after this problem."""


class _Composer:
    """Builds nodes from the parser's events, collects problems and continues if possible."""

    def __init__(self, file: str) -> None:
        self.problems: list[Problem] = []
        self._file = file
        self._values = 0
        self._anchors: dict[str, tuple[_Node, int] | None] = {}
        self._events: Iterator[yaml.Event] = iter(())

    def compose(self, text: str) -> _Node | None:
        """The root node of the only document in `text`, or None."""
        root = None
        documents = 0
        self._events = yaml.parse(text, Loader=yaml.CSafeLoader)
        try:
            for event in self._events:
                if not isinstance(event, yaml.DocumentStartEvent):
                    continue
                documents += 1
                if documents > 1:
                    message = "a second YAML document starts here; a file holds one"
                    self._stop(event, (), message, "put it into its own file")
                root = self._node(next(self._events), ())
        except _Stop:
            return None
        except yaml.YAMLError as error:
            self.problems.append(syntax_problem(error, self._file, text))
        return root

    def _node(self, event: yaml.Event, path: KeyPath) -> _Node:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event, path)
        before = self._values
        self._count(event, path, 1, "the file holds")
        if len(path) > MAX_DEPTH:
            self._stop(event, (), _TOO_DEEP, _SIMPLER)
        anchor: str | None = getattr(event, "anchor", None)
        if anchor is not None:
            self._anchors[anchor] = None
        if isinstance(event, yaml.MappingStartEvent):
            node = self._mapping(event, path)
        elif isinstance(event, yaml.SequenceStartEvent):
            node = self._sequence(event, path)
        else:
            assert isinstance(event, yaml.ScalarEvent)
            node = self._scalar(event, path)
        if anchor is not None:
            self._anchors[anchor] = node, self._values - before
        return node

    def _alias(self, event: yaml.AliasEvent, path: KeyPath) -> _Node:
        name = printable(str(event.anchor))[:40]
        if event.anchor not in self._anchors:
            self._note(
                event, path, f"the alias *{name} names no anchor", "quote text that starts with *"
            )
            return _Node(None, _line(event))
        anchored = self._anchors[event.anchor]
        if anchored is None:
            self._stop(
                event,
                path,
                f"the alias *{name} stands inside its own anchor",
                "write the value out",
            )
        target, values = anchored
        self._count(event, path, values, "with its aliases expanded, the file holds")
        if len(path) + target.height > MAX_DEPTH:
            self._stop(event, path, _TOO_DEEP, _SIMPLER)
        return target

    def _mapping(self, event: yaml.MappingStartEvent, path: KeyPath) -> _Node:
        if event.tag not in _MAP_TAGS:
            self._note_refusal(event, path, unknown_tag(str(event.tag)))
        children: dict[str | int, tuple[int, _Node]] = {}
        data: dict[str, Data] = {}
        while not isinstance(key_event := next(self._events), yaml.MappingEndEvent):
            key = self._key(key_event, path)
            value = self._value(next(self._events), (*path, "?" if key is None else key))
            if key is None:
                continue
            if key in children:
                self._note(
                    key_event,
                    (*path, key),
                    f"given twice; the first is on line {children[key][0]}",
                    "keep one of them",
                )
                continue
            children[key] = (_line(key_event), value)
            data[key] = value.data
        return _collection(data, event, children)

    def _key(self, event: yaml.Event, path: KeyPath) -> str | None:
        node = self._node(event, (*path, "?"))
        if node.data == "<<" and isinstance(event, yaml.ScalarEvent) and event.implicit[0]:
            self._note(event, path, "merge keys (<<) are not read", "write the keys out")
            return None
        if isinstance(node.data, str):
            return node.data
        self._note(
            event,
            path,
            f"expected a key that is text, got {shown(node.data)}",
            "quote it: YAML reads a bare on, yes, no, off or number as a value, not as text",
        )
        return None

    def _sequence(self, event: yaml.SequenceStartEvent, path: KeyPath) -> _Node:
        if event.tag not in _LIST_TAGS:
            self._note_refusal(event, path, unknown_tag(str(event.tag)))
        children: dict[str | int, tuple[int, _Node]] = {}
        while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
            children[len(children)] = (_line(item), self._value(item, (*path, len(children))))
        return _collection([node.data for _, node in children.values()], event, children)

    def _value(self, event: yaml.Event, path: KeyPath) -> _Node:
        node = self._node(event, path)
        if isinstance(node.data, str) and (control := CONTROL.search(node.data)):
            code = f"U+{ord(control[0]):04X}"
            self._note(event, path, f"the control character {code} is not allowed", _NO_ESCAPES)
        return node

    def _scalar(self, event: yaml.ScalarEvent, path: KeyPath) -> _Node:
        try:
            data = read_scalar(event.value, event.tag, plain=event.implicit[0])
        except RefusedError as refusal:
            self._note_refusal(event, path, refusal)
            data = event.value
        return _Node(data, _line(event))

    def _count(self, event: yaml.Event, path: KeyPath, values: int, what: str) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            self._stop(
                event, path, f"{what} more than the limit of {MAX_VALUES:,} values", _SIMPLER
            )

    def _note(
        self, event: yaml.Event, path: KeyPath, message: str, hint: str | None = None
    ) -> None:
        self.problems.append(Problem(self._file, _line(event), dotted(path), message, hint))

    def _note_refusal(self, event: yaml.Event, path: KeyPath, refusal: RefusedError) -> None:
        self._note(event, path, refusal.message, refusal.hint)

    def _stop(
        self, event: yaml.Event, path: KeyPath, message: str, hint: str | None = None
    ) -> NoReturn:
        self._note(event, path, message, hint)
        raise _Stop


def syntax_problem(error: yaml.YAMLError, file: str, text: str) -> Problem:
    """What the parser says of a text that is not YAML."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return Problem(file, None, "", f"not YAML: {printable(str(error))}")
    mark = error.problem_mark
    line = max(1, min(mark.line + 1, len(text.splitlines()))) if mark else None
    if _TOO_DEEP_FOR_PARSER in str(error.problem):
        return Problem(file, line, "", _TOO_DEEP, _SIMPLER)
    what = re.sub("^(did|could) not find expected", "expected", str(error.problem))
    opened = error.context_mark.line + 1 if error.context_mark else 1
    hints = (hint for fragment, hint in _SYNTAX_HINTS if fragment in what)
    hint = next(hints, "check the indentation and quotes around this line")
    hint = hint.replace("{opened}", str(opened))
    context = f" {error.context}" if error.context else ""
    return Problem(file, line, "", f"not YAML: {what}{context}", hint)


def _collection(
    data: Data, event: yaml.Event, children: Mapping[str | int, tuple[int, _Node]]
) -> _Node:
    height = 1 + max((node.height for _, node in children.values()), default=0)
    return _Node(data, _line(event), height, children)


def _line(event: yaml.Event) -> int:
    assert event.start_mark is not None
    return event.start_mark.line + 1


def _lines(node: _Node, path: KeyPath) -> Iterator[tuple[KeyPath, int]]:
    if not path:
        yield path, node.line
    for part, (line, child) in node.children.items():
        yield (*path, part), line
        yield from _lines(child, (*path, part))
