"""Where compared labs are kept, so that a run that ended early goes on where it was.

In: a folder. Out: a file per lab; and which labs still have to be run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.agreement.document import LAB, LabResult
from bench.agreement.plan import lab_spec
from rocelab.documents import to_json
from rocelab.errors import InputError


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of compared labs."""

    folder: Path

    def write(self, result: LabResult) -> None:
        """Keep a lab. A killed writer leaves the file as it was."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(result.name)
        fresh = path.with_suffix(".new")
        fresh.write_text(to_json(result), encoding="utf-8")
        fresh.replace(path)

    def read(self, name: str) -> LabResult | None:
        """What is kept of a lab; None where that is nothing, or of a spec that is no longer the
        plan's. Raises InputError where the file is none of ours."""
        try:
            text = self._path(name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            result = LAB.read(text)
        except InputError as error:
            raise InputError(f"{self._path(name)}: {error.message}", error.hint) from error
        wanted = lab_spec(name).model_dump(mode="json", exclude_none=True)
        return result if result.lab == wanted else None

    def is_finished(self, name: str) -> bool:
        """Whether a lab was run to its end."""
        result = self.read(name)
        return result is not None and result.failed is None

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"
