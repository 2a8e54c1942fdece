"""Stores compared labs, so that a run that ended early can continue.

A folder has a file per lab; the store knows which labs still have to be run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.agreement.document import LAB, LabResult
from bench.agreement.plan import lab_spec
from bench.campaign.store import KeptDocuments


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of compared labs."""

    folder: Path

    @property
    def _labs(self) -> KeptDocuments[LabResult]:
        return KeptDocuments(self.folder, LAB)

    def write(self, result: LabResult) -> None:
        """Keep a lab."""
        self._labs.write(result.name, result)

    def read(self, name: str) -> LabResult | None:
        """What is kept of a lab; None where that is nothing, or of a spec that is no longer the
        plan's. Raises InputError where the file is none of ours."""
        result = self._labs.read(name)
        wanted = lab_spec(name).model_dump(mode="json", exclude_none=True)
        return result if result is not None and result.lab == wanted else None

    def is_finished(self, name: str) -> bool:
        """Whether a lab's run is complete, queues included."""
        result = self.read(name)
        return (
            result is not None
            and result.failed is None
            and all(cell.lab_queues is not None for cell in result.cells if cell.is_carried)
        )
