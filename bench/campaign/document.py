"""The results of a study as data, and the only source of its page."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from rocelab.base.documents import Format

SCHEMA_VERSION = 1
Load = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class PointResult:
    """What was measured of a point."""

    name: str
    samples: tuple[Any, ...] = ()
    rejected: int = 0
    """Samples that the machine did not carry."""

    missing: str | None = None
    """Why this machine cannot measure it."""

    failed: str | None = None
    """The error that ended its last turn."""

    def lacks(self, turns: int) -> bool:
        """Whether it still has turns to take."""
        return self.missing is None and len(self.samples) < turns

    def with_sample(self, sample: Any) -> PointResult:  # noqa: ANN401
        return replace(self, samples=(*self.samples, sample), failed=None)


@dataclass(frozen=True, slots=True)
class Document:
    """A study's results on one machine."""

    schema_version: int
    study: str
    environment: dict[str, Any]
    load_average: dict[str, Load]
    """That of 1, 5 and 15 minutes, before the first turn and after the last one."""

    points: tuple[PointResult, ...]
    busy_cpus: float = 0.0
    """The most CPUs that other work took right before a turn."""

    def samples(self, name: str) -> tuple[Any, ...]:
        """The samples of a point; none where it was not measured."""
        return next((point.samples for point in self.points if point.name == name), ())

    @property
    def measured(self) -> dict[str, tuple[Any, ...]]:
        """Samples by point, in order, of those that have any."""
        return {point.name: point.samples for point in self.points if point.samples}

    @property
    def firsts(self) -> list[Any]:
        """The first sample of each point: a row of a table of points that have one turn."""
        return [samples[0] for samples in self.measured.values()]

    @property
    def missing(self) -> dict[str, str]:
        """Why points could not be measured."""
        return {point.name: point.missing for point in self.points if point.missing is not None}


DOCUMENT = Format(
    Document, SCHEMA_VERSION, "the results of a study", "measure it again with `python -m bench`"
)


def written(document: Document) -> str:
    """The document as JSON, its keys in the order in which pages list them."""
    return json.dumps(asdict(document), indent=1, allow_nan=False) + "\n"
