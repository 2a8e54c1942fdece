"""Finds the file of a drill that a user names, and of the lab that a drill names."""

from __future__ import annotations

from pathlib import Path

from rocelab.drills.spec import DrillSpec
from rocelab.spec.catalog import DRILLS, find, find_lab, tree_of


def find_drill(text: str) -> Path:
    """The file of the drill that a user calls `text`, as `rocelab.spec.catalog.find` does."""
    return find(text, DRILLS)


def lab_of(drill: DrillSpec, path: Path) -> Path:
    """The lab file of the drill read from `path`: a name is looked up in the drill's own tree
    first; a relative path starts at the drill's folder.

    Raises InputError if there is no such lab.
    """
    return find_lab(drill.lab, tree_of(path), path.parent)
