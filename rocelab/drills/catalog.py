"""Which file is the drill that a user names, and which is the lab that a drill names."""

from __future__ import annotations

from pathlib import Path

from rocelab.drills.spec import DrillSpec
from rocelab.spec.catalog import DRILLS, find, find_lab, shipped_names, tree_of


def drill_names() -> tuple[str, ...]:
    """The names of the drills that ship, in alphabetical order."""
    return shipped_names(DRILLS)


def find_drill(text: str) -> Path:
    """The file of the drill that a user calls `text`, as `rocelab.spec.catalog.find` has it."""
    return find(text, DRILLS)


def lab_of(drill: DrillSpec, path: Path) -> Path:
    """The lab file of the drill read from `path`: a name is sought in the drill's own tree first, a
    relative path starts at its folder.

    Raises InputError when there is no such lab.
    """
    return find_lab(drill.lab, tree_of(path), path.parent)
