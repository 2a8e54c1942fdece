"""Keeps the evidence of a lab that does not converge while it comes up: it is taken down then.

In: a planned lab and a folder. Out: a new folder in it, if the lab does not converge.
"""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from rocelab.base.errors import RocelabError
from rocelab.base.outputs import Folder, OutputPlace
from rocelab.lab.convergence import SHOWN, NotConvergedError
from rocelab.lab.lab import PlannedLab, RunningLab
from rocelab.planning.fabric import Fabric

RESULTS = OutputPlace(Path("results"))
MOST_NODES = 16
"""So that evidence of a large lab takes seconds and megabytes."""


def keep_unconverged(lab: PlannedLab[RunningLab], folder: Folder | OutputPlace = RESULTS) -> None:
    """Let `lab.up` collect evidence if routing does not converge, before it takes the lab down: of
    `nodes_concerned`, in a new folder `failed-up-LAB-TIME` in `folder`. The error names it."""

    def keep(running: RunningLab, error: NotConvergedError) -> str:
        from rocelab.observe.evidence.bundle import INDEX, collect_evidence

        place = folder / f"failed-up-{lab.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
        nodes = nodes_concerned(lab.fabric, error)
        try:
            collect_evidence(running, nodes, place, capture_s=0, why=error.message)
        except (RocelabError, OSError, subprocess.SubprocessError) as failure:
            return f"evidence could not be kept in {place}: {failure}"
        return f"{place.path / INDEX} lists the evidence of {', '.join(nodes)}"

    lab.on_unconverged = keep


def nodes_concerned(fabric: Fabric, error: NotConvergedError) -> tuple[str, ...]:
    """The switches that the error shows, then their neighbours: MOST_NODES at most."""
    concerned = error.nodes[:SHOWN]
    neighbours = (
        link.far(node).node
        for node in concerned
        for link in fabric.links_of[node]
        if link.is_between_switches
    )
    return tuple(dict.fromkeys([*concerned, *neighbours]))[:MOST_NODES]
