"""A drill's row in a list, from its file alone: fast, because nothing is planned."""

from __future__ import annotations

from dataclasses import dataclass

from rocelab.drills.drill_spec import HASHING_NS, DrillSpec

_NS_PER_S = 10**9


@dataclass(frozen=True, slots=True)
class DrillRow:
    """A drill in a list."""

    name: str
    lab: str
    kind: str
    """What its phases run: `probes`, `jobs`, `programs`, or several: `probes and jobs`."""
    title: str
    seconds: float | None
    """How long the traffic of one run lasts, without lab up and down; None with jobs or programs,
    which end by themselves."""


def row_of(drill: DrillSpec) -> DrillRow:
    """The drill's row."""
    kinds = dict.fromkeys(phase.sends for phase in drill.phases)
    times_ns = [
        max(1, len(phase.compare_hashing)) * HASHING_NS + probes.warmup + probes.duration
        for phase in drill.phases
        if (probes := phase.probes)
    ]
    seconds = sum(times_ns) / _NS_PER_S if len(times_ns) == len(drill.phases) else None
    title = drill.title or drill.name
    return DrillRow(drill.name, drill.lab, " and ".join(kinds), title, seconds)
