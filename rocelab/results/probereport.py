"""The document of probes that were sent while others could break the lab.

`rocelab.drills.openprobes` makes it; the live page shows it. docs/documents.md is generated from
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocelab.results.environment import Environment
from rocelab.results.oflab import OfLab
from rocelab.results.probes import Disturbance, ProbeRun

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class ProbeReport(OfLab):
    """Probes on a lab that others could break. It is a measurement of the undisturbed lab only if
    `disturbed` and the run's `problems` are empty.

    probes, lab: the specs in full, as JSON values. zero_unix_ns: CLOCK_REALTIME of time 0 of `run`:
    its first fault or, without one, the start of counting. disturbed: the faults, with times after
    the start of counting.
    """

    schema_version: int
    probes: dict[str, Any]
    lab: dict[str, Any]
    environment: Environment
    zero_unix_ns: int
    disturbed: tuple[Disturbance, ...]
    run: ProbeRun

    @property
    def valid(self) -> bool:
        return self.run.valid and not self.disturbed
