"""Finds the file of the lab that a drill names."""

from __future__ import annotations

from pathlib import Path

from rocelab.drills.spec import DrillSpec
from rocelab.spec.catalog import find_lab, tree_of


def lab_of(drill: DrillSpec, path: Path) -> Path:
    """The lab file of the drill read from `path`: a name is looked up in the drill's own tree
    first; a relative path starts at the drill's folder.

    Raises InputError if there is no such lab.
    """
    return find_lab(drill.lab, tree_of(path), path.parent)
