"""The drills that ship with the kit, and the rule by which a command finds the drill it is given.

A drill is named by its catalog name (`link-flap`) or by a path to a YAML file of the user's own.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from labs.errors import InputError
from labs.spec.catalog import find_lab
from labs.spec.wording import shown
from scripts.drill.phases.spec import JobDrillSpec
from scripts.drill.spec import DrillSpec

CATALOG = Path(__file__).resolve().parent.parent / "catalog"


def drill_names() -> tuple[str, ...]:
    """The names of the drills that ship, in alphabetical order."""
    return tuple(sorted(path.stem for path in CATALOG.glob("*.yaml")))


def find_drill(text: str) -> Path:
    """The file of the drill that a user calls `text`: a catalog name, or a path to a file.

    Text with a slash or ending in .yaml or .yml is a path whether or not the file exists; reading
    it says so. Raises InputError with the catalog's names when there is no such drill.
    """
    names = drill_names()
    if text in names:
        return CATALOG / f"{text}.yaml"
    path = Path(text)
    if "/" in text or path.suffix in (".yaml", ".yml"):
        return path
    close = difflib.get_close_matches(text.lower()[:64], names, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    raise InputError(
        f"there is no drill {shown(text)} in the catalog",
        f"{meant}the catalog has {', '.join(names)}; a file of your own is given by its path",
    )


def lab_of(drill: DrillSpec | JobDrillSpec, path: Path) -> Path:
    """The lab file of the drill read from `path`; a relative path starts at the drill's folder.

    Raises InputError when there is no such lab in the catalog.
    """
    return path.parent / find_lab(drill.lab)
