"""The files that a lab's file names: what they hold becomes part of the spec when it is loaded.

A record or a result then needs no file beside itself. A key whose value names files is a
`FileReference` in `REFERENCES`; its reader gives the values that stand there instead, with their
lines. Paths are relative to the folder of the lab's file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rocelab.base.wording import KeyPath
from rocelab.labfile.cables import read_cables
from rocelab.labfile.source import Data, YamlSource


@dataclass(frozen=True, slots=True)
class Content:
    """What stands for a key that names files."""

    data: Data
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    """The line of each value in its file, by its key path below the key."""
    files: Mapping[KeyPath, str] = field(default_factory=dict)
    """The file that holds each value, by its key path below the key."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A key whose text names files."""

    block: tuple[str, ...]
    """Where the key stands."""
    key: str
    target: str
    """The key of the block that holds the contents, which may be the same."""
    read: Callable[[Path, str], Content]
    """Given the folder of the lab's file and the text, the contents. Raises SpecError."""


def _cables(folder: Path, text: str) -> Content:
    source = read_cables(folder / text)
    lines = {path[1:]: line for path, line in source.lines.items() if path}
    return Content(source.data["links"], lines, {(): source.file})


REFERENCES = (FileReference(("fabric",), "cables", "links", _cables),)


def with_contents(source: YamlSource, folder: Path) -> YamlSource:
    """The lab's file with the contents of the files that it names. Raises SpecError."""
    for reference in REFERENCES:
        block: object = source.data
        for key in reference.block:
            block = block.get(key) if isinstance(block, dict) else None
        if isinstance(block, dict) and isinstance(block.get(reference.key), str):
            source = _resolved(source, reference, folder)
    return source


def _resolved(source: YamlSource, reference: FileReference, folder: Path) -> YamlSource:
    data = dict(source.data)
    block = data
    for key in reference.block:
        inner = block[key]
        assert isinstance(inner, dict)
        block[key] = block = dict(inner)
    text = block.pop(reference.key)
    assert isinstance(text, str)
    content = reference.read(folder, text)
    here: KeyPath = (*reference.block, reference.target)
    before = block.get(reference.target)
    offset = len(before) if isinstance(before, list) else 0
    if isinstance(before, list) and isinstance(content.data, list):
        block[reference.target] = [*before, *content.data]
    else:
        block[reference.target] = content.data

    def placed(path: KeyPath) -> KeyPath:
        if offset and path and isinstance(path[0], int):
            path = (path[0] + offset, *path[1:])
        return (*here, *path)

    lines = dict(source.lines)
    lines.setdefault(here, source.line((*reference.block, reference.key)) or 1)
    lines.update((placed(path), line) for path, line in content.lines.items() if path or not offset)
    files = dict(source.files)
    if offset and () in content.files and isinstance(content.data, list):
        files.update((placed((index,)), content.files[()]) for index in range(len(content.data)))
    else:
        files.update((placed(path), file) for path, file in content.files.items())
    return YamlSource(source.file, data, lines, files)


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
