"""Reads what others have of a network: drawings, lists of cables, and what its switches say.

A source is a file or a folder. `READERS` has each form, with how it is told from others; a further
one is a module and a line there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rocelab.base.documents import read_text
from rocelab.base.errors import InputError
from rocelab.importing.cables import read_cable_list
from rocelab.importing.containerlab import read_containerlab
from rocelab.importing.lldp import is_lldp, read_lldp
from rocelab.importing.netlab import AS_JSON, read_netlab
from rocelab.importing.sonic import is_sonic, read_sonic
from rocelab.importing.topology import ImportedTopology

Document = Mapping[str, Any]
MOST_FILES = 2048
FORMS = (
    "a topology of containerlab (.yml), of netlab as JSON, a list of cables (.csv), a drawing of "
    "graphviz (.dot), config_db.json of SONiC switches, or LLDP neighbours as JSON"
)


@dataclass(frozen=True, slots=True)
class DocumentReader:
    """A form of which every switch has a JSON document."""

    knows: Callable[[Document], bool]
    read: Callable[[str, Mapping[Path, Document]], ImportedTopology]
    """Given a name and the documents by file, the topology."""


READERS = (DocumentReader(is_sonic, read_sonic), DocumentReader(is_lldp, read_lldp))


def read_topology(path: Path, environment: Mapping[str, str]) -> ImportedTopology:
    """The topology in a file or a folder; variables of containerlab's are expanded from
    `environment`.

    Raises SpecError or InputError for anything else.
    """
    if os.path.isdir(path):  # noqa: PTH112 (is_dir raises if a name is too long)
        return _folder_topology(path)
    match path.suffix.lower():
        case ".csv" | ".dot" | ".gv":
            return read_cable_list(path)
        case ".json":
            return _documents_topology(path.stem, {path: _json(path)}, path)
        case _:
            return read_containerlab(path, environment)


def _folder_topology(folder: Path) -> ImportedTopology:
    files = sorted((*folder.glob("*.json"), *folder.glob("*/*.json")))
    if not files:
        raise InputError(
            f"{folder} has no file of JSON, and no folder in it has", f"expected {FORMS}"
        )
    if len(files) > MOST_FILES:
        raise InputError(f"{folder} has {len(files):,} files of JSON, {MOST_FILES:,} are read")
    documents: dict[Path, Document] = {}
    unread: list[str] = []
    for file in files:
        try:
            documents[file] = _json(file)
        except InputError as error:
            unread.append(f"{file} ({error.message.removeprefix(f'{file} ')})")
    imported = _documents_topology(folder.resolve().name, documents, folder)
    return replace(imported, left_out=(*imported.left_out, *unread))


def _documents_topology(
    name: str, documents: Mapping[Path, Document], source: Path
) -> ImportedTopology:
    for reader in READERS:
        known = {file: document for file, document in documents.items() if reader.knows(document)}
        if known:
            others = [f"{file} (of another form)" for file in documents if file not in known]
            imported = reader.read(name, known)
            return replace(imported, left_out=(*imported.left_out, *others))
    if len(documents) == 1:
        return read_netlab(source, next(iter(documents.values())))
    raise InputError(f"{source} has no document of a known form", f"expected {FORMS}")


def _json(path: Path) -> Document:
    try:
        document = json.loads(read_text(path, AS_JSON))
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON", AS_JSON) from None
    if not isinstance(document, dict):
        raise InputError(f"{path} is no topology: no JSON object", f"expected {FORMS}")
    return document
