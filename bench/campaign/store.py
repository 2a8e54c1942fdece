"""Points that are measured, each in a file: a campaign that ended early continues from them.

`KeptDocuments` is a folder of documents of one format. A `Store` has one with a study's points,
until all are measured and its data is published.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from bench.campaign.document import SCHEMA_VERSION, Load, PointResult
from rocelab import InputError
from rocelab.base.documents import Format, to_json
from rocelab.base.files import remove_tree, replace_file

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Kept = TypeVar("Kept", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class KeptDocuments(Generic[Kept]):
    """A folder of documents of one format."""

    folder: Path
    format: Format[Kept]

    def has(self, name: str) -> bool:
        return self._path(name).exists()

    def write(self, name: str, document: Kept) -> None:
        """Keep a document. A killed writer leaves the file as it was."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(name), to_json(document))

    def read(self, name: str) -> Kept | None:
        """The document of that name, if any. Raises InputError, which names the file, where it is
        of another format."""
        try:
            text = self._path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            return self.format.read(text)
        except InputError as error:
            raise InputError(f"{self._path(name)}: {error.message}", error.hint) from error

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


@dataclass(frozen=True, slots=True)
class StoredPoint:
    """A point as it is kept."""

    schema_version: int
    result: PointResult


@dataclass(frozen=True, slots=True)
class Start:
    """The machine at the first turn of a campaign, and the most CPUs that other work took since."""

    schema_version: int
    environment: tuple[tuple[str, Any], ...]
    """In pairs, which keep their order."""

    load_average: Load
    busy_cpus: float = 0.0


_POINT = Format(StoredPoint, SCHEMA_VERSION, "a measured point", "remove it to measure it again")
_START = Format(Start, SCHEMA_VERSION, "the start of a campaign", "remove it to begin anew")
_START_NAME = "campaign"


@dataclass(frozen=True, slots=True)
class Store:
    """The points of a study that are measured by now."""

    folder: Path

    @property
    def _points(self) -> KeptDocuments[StoredPoint]:
        return KeptDocuments(self.folder / "points", _POINT)

    @property
    def _starts(self) -> KeptDocuments[Start]:
        return KeptDocuments(self.folder, _START)

    def start(self) -> Start | None:
        return self._starts.read(_START_NAME)

    def write_start(self, start: Start) -> None:
        self._starts.write(_START_NAME, start)

    def point(self, name: str) -> PointResult:
        """What is kept of a point. Raises InputError where its file is none of ours."""
        kept = self._points.read(file_name(name))
        return PointResult(name) if kept is None else kept.result

    def write(self, result: PointResult) -> None:
        """Keep a point."""
        self._points.write(file_name(result.name), StoredPoint(SCHEMA_VERSION, result))

    def clear(self) -> None:
        """Forget all points."""
        remove_tree(self.folder)


def file_name(point: str) -> str:
    """A point's name without what a file's cannot have."""
    return re.sub(r"[^\w.%+-]+", "-", point).strip("-")
