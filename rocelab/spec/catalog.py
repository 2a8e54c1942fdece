"""The labs that ship with the kit, and the rule by which a command finds the lab it is given.

A lab is named by its catalog name (`zone-small`) or by a path to a YAML file of the user's own.
"""

from __future__ import annotations

from pathlib import Path

from rocelab.data import shipped
from rocelab.errors import InputError
from rocelab.wording import did_you_mean, shown

CATALOG = shipped("labs")


def catalog_names() -> tuple[str, ...]:
    """The names of the labs that ship, in alphabetical order."""
    return names_in(CATALOG)


def find_lab(text: str) -> Path:
    """The file of the lab that a user calls `text`, as `find` has it."""
    return find(text, CATALOG, "lab")


def names_in(folder: Path) -> tuple[str, ...]:
    """The names of the YAML files in a catalog's folder, in alphabetical order."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


def find(text: str, folder: Path, kind: str) -> Path:
    """The file that a user calls `text`: a name of the catalog in `folder`, or a path to a file.

    Text with a slash or ending in .yaml or .yml is a path whether or not the file exists; reading
    it says so. Raises InputError with the catalog's names when there is no such `kind` of file.
    """
    names = names_in(folder)
    if text in names:
        return folder / f"{text}.yaml"
    path = Path(text)
    if "/" in text or path.suffix in (".yaml", ".yml") or _is_file(path):
        return path
    meant = did_you_mean(text, names)
    raise InputError(
        f"there is no {kind} {shown(text)} in the catalog, and no such file",
        f"{meant + ' ' if meant else ''}the catalog has {', '.join(names)}; "
        "a file of your own is given by its path",
    )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:
        return False
