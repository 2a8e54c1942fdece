"""Progress of a long task, reported to a sink."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a stage of `up` or `down` has come: `done` of `total` steps."""

    stage: str
    done: int
    total: int


ProgressSink = Callable[[Progress], None]


def no_progress(_: Progress) -> None:
    """A sink for callers that do not watch."""
