"""Stores measured cells, so that a run that ended early can continue.

A folder has a file per cell; the store knows which cells of a plan still have to be measured. Cells
that compare releases of FRR are in a subfolder per release, separate from those of the whole plan.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from bench.campaign.store import KeptDocuments
from bench.convergence.document import CELL, JOB, CellResult, ConvergenceTable, LinkFailureTest
from bench.convergence.plan import Cell, lab_spec
from rocelab import LabSpec

_JOB_NAME = "link-failure-test"
_OF_RELEASE = "frr-"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of measured cells."""

    folder: Path

    @property
    def _cells(self) -> KeptDocuments[CellResult]:
        return KeptDocuments(self.folder, CELL)

    @property
    def _jobs(self) -> KeptDocuments[LinkFailureTest]:
        return KeptDocuments(self.folder, JOB)

    def of_release(self, version: str) -> Store:
        """The store of this FRR's cells for the comparison."""
        return Store(self.folder / f"{_OF_RELEASE}{version}")

    def releases(self) -> tuple[str, ...]:
        """The versions of FRR that are compared, oldest first."""
        names = (path.name for path in self.folder.glob(f"{_OF_RELEASE}*"))
        return tuple(sorted((name.removeprefix(_OF_RELEASE) for name in names), key=release_order))

    def take(self, table: ConvergenceTable) -> None:
        """Store a table's cells that are missing here, and its link-failure test."""
        for result in table.cells:
            self._take_cell(result)
        for result in table.releases:
            self.of_release(result.environment.frr_version)._take_cell(result)
        if table.job is not None and self.read_job() is None:
            self.write_job(table.job)

    def _take_cell(self, result: CellResult) -> None:
        if not self._cells.has(result.name):
            self.write(result)

    def write(self, result: CellResult) -> None:
        """Keep a cell, measured or failed."""
        self._cells.write(result.name, result)

    def read(self, cell: Cell) -> CellResult | None:
        """What is kept of a cell; None where that is nothing, or of a lab that is no longer the
        plan's. Raises InputError where the file is none of ours."""
        result = self._cells.read(cell.name)
        return result if result is not None and _is_lab_of(cell, result) else None

    def read_all(self, cells: Sequence[Cell]) -> tuple[CellResult, ...]:
        """All stored results of these cells, in their order."""
        return tuple(result for cell in cells if (result := self.read(cell)) is not None)

    def unfinished(self, cells: Sequence[Cell], wanted: int) -> tuple[Cell, ...]:
        """The cells with fewer than `wanted` failures: never measured, failed, or incomplete."""
        return tuple(cell for cell in cells if not self._is_finished(cell, wanted))

    def write_job(self, result: LinkFailureTest) -> None:
        """Keep the link-failure test."""
        self._jobs.write(_JOB_NAME, result)

    def read_job(self) -> LinkFailureTest | None:
        """The link-failure test that is kept, if any. Raises InputError as `read` does."""
        return self._jobs.read(_JOB_NAME)

    def _is_finished(self, cell: Cell, wanted: int) -> bool:
        result = self.read(cell)
        return result is not None and result.is_whole and len(result.failures) >= wanted


def _is_lab_of(cell: Cell, result: CellResult) -> bool:
    """Whether a cell was measured on the plan's lab. Keys that specs have gained since then have
    their defaults."""
    try:
        return LabSpec.model_validate(result.lab) == lab_spec(cell)
    except ValidationError:
        return False


def release_order(version: str) -> tuple[tuple[int, ...], str]:
    """Sorts versions: 8.4.4 before 10.3, and non-numbers before all."""
    numbers = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, numbers[0].split("."))) if numbers else (), version
