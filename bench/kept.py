"""Documents of a campaign, each in a file by its name: a run that ended early continues from them.

Shared by the campaigns of `bench`: convergence and agreement.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from rocelab import InputError
from rocelab.base.documents import Format, to_json
from rocelab.base.files import replace_file

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Document = TypeVar("Document", bound="DataclassInstance")


@dataclass(frozen=True, slots=True)
class KeptDocuments(Generic[Document]):
    """A folder of documents of one format."""

    folder: Path
    format: Format[Document]

    def has(self, name: str) -> bool:
        return self._path(name).exists()

    def write(self, name: str, document: Document) -> None:
        """Keep a document. A killed writer leaves the file as it was."""
        self.folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(name), to_json(document))

    def read(self, name: str) -> Document | None:
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
