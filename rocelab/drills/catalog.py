"""The drills that ship with the kit, and the rule by which a command finds the drill it is given.

A drill is named by its catalog name (`link-flap`) or by a path to a YAML file of the user's own.
"""

from __future__ import annotations

from pathlib import Path

from rocelab.data import shipped
from rocelab.drills.spec import DrillSpec
from rocelab.spec.catalog import find, find_lab, names_in

CATALOG = shipped("scripts")


def drill_names() -> tuple[str, ...]:
    """The names of the drills that ship, in alphabetical order."""
    return names_in(CATALOG)


def find_drill(text: str) -> Path:
    """The file of the drill that a user calls `text`, as `rocelab.spec.catalog.find` has it."""
    return find(text, CATALOG, "drill")


def lab_of(drill: DrillSpec, path: Path) -> Path:
    """The lab file of the drill read from `path`; a relative path starts at the drill's folder.

    Raises InputError when there is no such lab in the catalog.
    """
    return path.parent / find_lab(drill.lab)
