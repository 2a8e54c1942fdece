"""Documents of studies, for tests of their pages."""

from __future__ import annotations

from typing import Any

from bench.campaign.document import SCHEMA_VERSION, Document, PointResult

ENVIRONMENT = {"cpu_model": "a CPU", "python": "3.11", "started": "2026-11-29T12:00:00Z"}
LOADS = {"before": (0.1, 0.2, 0.3), "after": (1.0, 2.0, 3.0)}


def document(*rows: Any, points: tuple[PointResult, ...] = ()) -> Document:
    """Of points with a sample each, and of others."""
    measured = [PointResult(str(number), (row,)) for number, row in enumerate(rows)]
    return Document(SCHEMA_VERSION, "study", ENVIRONMENT, LOADS, (*measured, *points))
