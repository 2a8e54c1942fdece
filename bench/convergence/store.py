"""Where measured cells are kept, so that a run that ended early goes on where it was.

In: a folder. Out: a file per cell; and which cells of a plan still have to be measured. Cells that
compare releases of FRR are in a folder per release below it, apart from those of the whole plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bench.convergence.document import CELL, JOB, CellResult, ConvergenceTable, LinkFailureTest
from bench.convergence.plan import Cell, lab_spec
from rocelab.documents import to_json
from rocelab.errors import InputError
from rocelab.spec.model import LabSpec

JOB_FILE = "link-failure-test.json"
_OF_RELEASE = "frr-"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of measured cells."""

    folder: Path

    def of_release(self, version: str) -> Store:
        """The store of the cells that this FRR is compared by."""
        return Store(self.folder / f"{_OF_RELEASE}{version}")

    def releases(self) -> tuple[str, ...]:
        """The versions of FRR that are compared, from the oldest on."""
        names = (each.name for each in self.folder.glob(f"{_OF_RELEASE}*"))
        return tuple(sorted((name.removeprefix(_OF_RELEASE) for name in names), key=release_order))

    def take(self, table: ConvergenceTable) -> None:
        """Keep what a table has of cells that are not here, and its link-failure test."""
        for result in table.cells:
            self._take_cell(result)
        for result in table.releases:
            self.of_release(result.environment.frr_version)._take_cell(result)
        if table.job is not None and self.read_job() is None:
            self.write_job(table.job)

    def _take_cell(self, result: CellResult) -> None:
        if not self._path(result.name).exists():
            self.write(result)

    def write(self, result: CellResult) -> None:
        """Keep a cell, measured or failed."""
        self._write(self._path(result.name), to_json(result))

    def read(self, cell: Cell) -> CellResult | None:
        """What is kept of a cell; None where that is nothing, or of a lab that is no longer the
        plan's. Raises InputError where the file is none of ours."""
        try:
            text = self._path(cell.name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        try:
            result = CELL.read(text)
        except InputError as error:
            raise InputError(f"{self._path(cell.name)}: {error.message}", error.hint) from error
        return result if _is_lab_of(cell, result) else None

    def read_all(self, cells: Sequence[Cell]) -> tuple[CellResult, ...]:
        """Everything kept of these cells, in their order."""
        return tuple(result for cell in cells if (result := self.read(cell)) is not None)

    def unfinished(self, cells: Sequence[Cell], wanted: int) -> tuple[Cell, ...]:
        """The cells of which `wanted` failures are not there: never measured, failed, or fewer."""
        return tuple(cell for cell in cells if not self._is_finished(cell, wanted))

    def write_job(self, result: LinkFailureTest) -> None:
        """Keep the link-failure test."""
        self._write(self.folder / JOB_FILE, to_json(result))

    def read_job(self) -> LinkFailureTest | None:
        """The link-failure test that is kept, if any. Raises InputError as `read` does."""
        try:
            return JOB.read((self.folder / JOB_FILE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None

    def _is_finished(self, cell: Cell, wanted: int) -> bool:
        result = self.read(cell)
        return result is not None and result.is_whole and len(result.failures) >= wanted

    def _write(self, path: Path, text: str) -> None:
        """A killed writer leaves the file as it was."""
        self.folder.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".new")
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(path)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.json"


def _is_lab_of(cell: Cell, result: CellResult) -> bool:
    """Whether a cell was measured on the plan's lab. Keys that a spec has got since then have their
    defaults."""
    try:
        return LabSpec.model_validate(result.lab) == lab_spec(cell)
    except ValidationError:
        return False


def release_order(version: str) -> tuple[tuple[int, ...], str]:
    """Sorts versions: 8.4.4 before 10.3, and what is no number before all."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else (), version
