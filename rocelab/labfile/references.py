"""The files that a lab's or a job's file names: what they hold becomes part of it when it is read.

A record or a result then needs no file beside itself. A key whose value may name files is a
`FileReference`, which the module that reads those files makes; `load_spec` and `load_jobs` list
theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocelab.base.errors import InputError, Problem, SpecError
from rocelab.base.wording import KeyPath, dotted
from rocelab.labfile.source import Data, YamlSource

EACH = "*"
"""In a reference's key: every name of a block, and every place of a list."""


@dataclass(frozen=True, slots=True)
class Naming:
    """A value that may name files."""

    source: YamlSource
    """The file that has the value, with what was read so far."""
    path: Path
    """Where that file is. Paths are relative to its folder."""
    key: KeyPath
    value: Data

    @property
    def folder(self) -> Path:
        """The folder of the naming file."""
        return self.path.parent


@dataclass(frozen=True, slots=True)
class Content:
    """What stands for a key that names files."""

    data: Data
    file: str | None = None
    """The file that problems name; None: the one that has the key."""
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """The line of each value in `file`, by its key path below `data`."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A key whose value may name files."""

    key: tuple[str, ...]
    read: Callable[[Naming], Content | None]
    """The contents; None if the value names no file. Raises InputError."""
    target: tuple[str, ...] | None = None
    """Where the contents stand, from the block that has the key; None: in place of the key. A list
    that is there already goes on with them, and what a block there says itself is left."""


def with_contents(
    source: YamlSource, path: Path, references: Iterable[FileReference]
) -> YamlSource:
    """The file at `path` with the contents of the files that it names. Raises SpecError."""
    for reference in references:
        for key, value in list(_values(source.data, reference.key)):
            try:
                content = reference.read(Naming(source, path, key, value))
            except SpecError:
                raise
            except InputError as error:
                problem = Problem(
                    source.file, source.line(key), dotted(key), error.message, error.hint
                )
                raise SpecError([problem]) from None
            if content is not None:
                target = key[-1:] if reference.target is None else reference.target
                source = _resolved(source, key, (*key[:-1], *target), content)
    return source


def _values(data: Data, key: KeyPath, above: KeyPath = ()) -> Iterator[tuple[KeyPath, Data]]:
    """The values whose key path is like `key`, with their paths."""
    if not key:
        yield above, data
        return
    name, below = key[0], key[1:]
    if isinstance(data, dict):
        for at in data if name == EACH else key[:1]:
            if at in data:
                yield from _values(data[at], below, (*above, at))
    elif isinstance(data, list):
        for place, value in enumerate(data):
            if name in (EACH, place):
                yield from _values(value, below, (*above, place))


def _changed(data: Data, path: KeyPath, change: Callable[[Data], Data]) -> Data:
    """A copy of `data` with the value at `path` changed. What is missing is None before."""
    if not path:
        return change(data)
    if isinstance(data, list):
        assert isinstance(path[0], int)
        items = list(data)
        items[path[0]] = _changed(items[path[0]], path[1:], change)
        return items
    assert isinstance(data, dict) and isinstance(path[0], str)
    return {**data, path[0]: _changed(data.get(path[0]), path[1:], change)}


def _without(block: Data, name: str | int) -> Data:
    assert isinstance(block, dict)
    return {key: value for key, value in block.items() if key != name}


def _resolved(source: YamlSource, key: KeyPath, here: KeyPath, content: Content) -> YamlSource:
    """The file with the content at `here`, and without the value at `key`."""
    rest = _changed(source.data, key[:-1], lambda block: _without(block, key[-1]))
    before = next((value for _, value in _values(rest, here)), None)
    # Where each part of the content is placed, by its path below the content.
    parts: dict[KeyPath, KeyPath] = {(): ()}
    data = content.data
    if isinstance(before, list) and isinstance(data, list):
        parts = {(place,): (len(before) + place,) for place in range(len(data))}
        data = [*before, *data]
    elif isinstance(before, dict) and before and isinstance(data, dict):
        parts = {(name,): (name,) for name in data if name not in before}
        data = {**data, **before}
    made = _changed(rest, here, lambda _: data)
    assert isinstance(made, dict)
    lines, files = dict(source.lines), dict(source.files)
    lines.setdefault(here, source.line(key) or 1)
    for path, line in content.lines.items():
        depth = 0 if () in parts else 1
        if path[:depth] in parts and len(path) >= depth:
            lines[(*here, *parts[path[:depth]], *path[depth:])] = line
    if content.file is not None:
        files.update(dict.fromkeys(((*here, *part) for part in parts.values()), content.file))
    return YamlSource(source.file, made, lines, files)


def by_network(source: YamlSource, read: Callable[[YamlSource], YamlSource]) -> YamlSource:
    """The file of a lab with several networks, each of them as `read` makes it of a lab's file.
    Raises as `read` does."""
    networks = source.data.get("networks")
    if not isinstance(networks, dict):
        return source
    made: dict[str, Data] = {}
    lines, files = dict(source.lines), dict(source.files)
    for name, block in networks.items():
        if not isinstance(block, dict):
            made[name] = block
            continue
        here: KeyPath = ("networks", name)
        below = {path[2:]: line for path, line in source.lines.items() if path[:2] == here}
        part = read(YamlSource(source.file, block, below))
        made[name] = part.data
        lines.update(((*here, *path), line) for path, line in part.lines.items())
        files.update(((*here, *path), file) for path, file in part.files.items())
    return YamlSource(source.file, {**source.data, "networks": made}, lines, files)
