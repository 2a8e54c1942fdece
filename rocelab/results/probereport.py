"""The document of probes that were sent while others could break the lab.

`rocelab.drills.openprobes` makes it; the live page shows it. docs/documents.md is generated from
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocelab.results.environment import Environment
from rocelab.results.oflab import LabDocument
from rocelab.results.probes import Disturbance, ProbeRun

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ProbeReport(LabDocument):
    """Probes on a lab that others could break. It is a measurement of the undisturbed lab only if
    `disturbed` and the run's `problems` are empty."""

    schema_version: int
    probes: dict[str, Any]
    """The spec in full, as JSON values."""
    lab: dict[str, Any]
    """The spec in full, as JSON values."""
    environment: Environment
    zero_unix_ns: int
    """CLOCK_REALTIME of time 0 of `run`: its first fault or, without one, the start of counting."""
    disturbed: tuple[Disturbance, ...]
    """The faults, with times after the start of counting."""
    run: ProbeRun

    @property
    def valid(self) -> bool:
        return self.run.valid and not self.disturbed
