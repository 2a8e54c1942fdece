"""A drill in a list, from its file alone: fast, for nothing is planned.

In: a drill. Out: its `DrillRow`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.drills.phases.spec import JobDrillSpec
from rocelab.drills.spec import HASHING_NS, DrillSpec

_NS_PER_S = 10**9


@dataclass(frozen=True, slots=True)
class DrillRow:
    """A drill in a list. kind: `faults` or `jobs`. seconds: how long the traffic of one run lasts,
    lab up and down apart; None for jobs, which end when they are done."""

    name: str
    lab: str
    kind: str
    title: str
    seconds: float | None


def row_of(drill: DrillSpec | JobDrillSpec) -> DrillRow:
    """The drill in a list."""
    title = drill.title or drill.name
    if isinstance(drill, JobDrillSpec):
        return DrillRow(drill.name, drill.lab, "jobs", title, None)
    traffic = drill.traffic
    undisturbed_ns = max(1, len(drill.compare_hashing)) * HASHING_NS
    seconds = (undisturbed_ns + traffic.warmup + traffic.duration) / _NS_PER_S
    return DrillRow(drill.name, drill.lab, "faults", title, seconds)
