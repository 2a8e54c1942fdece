"""The log of a controller: one JSON object per round, one line each, in one file of the lab.

The controller appends each round when it finishes; the file never grows beyond a limit.
`read_rounds` returns its last rounds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rocelab.base.files import append_file, replace_file

LOG_BYTES = 8 << 20
"""The size at which the log is cut to its newer half: it is in the machine's memory."""


@dataclass(frozen=True, slots=True)
class Utilisation:
    """Of a tier's links in one direction: the most used, and the mean of all."""

    links: int
    maximum: float
    mean: float


@dataclass(frozen=True, slots=True)
class Round:
    """A round of a controller. Times are CLOCK_REALTIME."""

    started_unix_s: float
    finished_unix_s: float
    reasons: tuple[str, ...]
    """Of `Reason`."""

    collect_ms: float
    engine_ms: float
    program_ms: float
    changed: int
    """Entries, or messages for resilient groups, of `total`."""

    removed: int
    """Entries, or messages for resilient groups, of `total`."""

    total: int
    demands: int = 0
    """Demands that te placed."""

    lost: int = 0
    """Demands without a path (te)."""

    overloaded: int = 0
    """Overloaded links (te)."""

    max_utilisation: float = 0.0
    lp_bound: float | None = None
    """The greatest utilisation of the optimum, if the engine of te knows it."""

    tiers: Mapping[str, Utilisation] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    """What could not be read or written."""


class RoundLog:
    """The file that a controller writes its rounds to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, done: Round) -> None:
        """Append a round. Raises OSError."""
        size = append_file(self._path, json.dumps(asdict(done)) + "\n")
        if size > LOG_BYTES:
            lines = self._path.read_text().splitlines(keepends=True)
            replace_file(self._path, "".join(lines[len(lines) // 2 :]))


def read_rounds(path: Path, last: int | None = None) -> list[Round]:
    """The last rounds of a log, oldest first; all by default. An incomplete line is left out."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return []
    rounds = []
    for line in lines if last is None else lines[-last:]:
        try:
            rounds.append(_round(json.loads(line)))
        except ValueError:
            continue
    return rounds


def _round(fields: dict[str, Any]) -> Round:
    tiers = {name: Utilisation(**use) for name, use in fields.pop("tiers").items()}
    reasons, problems = tuple(fields.pop("reasons")), tuple(fields.pop("problems"))
    return Round(**fields, reasons=reasons, problems=problems, tiers=tiers)
