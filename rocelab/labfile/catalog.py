"""Finds labs, drills, jobs and types of servers by name: a user's own, and the shipped ones.

A YAML file in `labs/`, `scripts/`, `servers/` or `traffic/` of the user's tree, or shipped in the
folder of that name, has a name (`zone-small`); the user's own file wins. On the command line the
tree is the current folder; for a name inside a file it is that file's tree. Any other file is named
by its path.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from rocelab.base.data import FOLDERS, shipped
from rocelab.base.errors import InputError
from rocelab.base.wording import did_you_mean, shown

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Names that a shell completes without quoting."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """The files of one kind. `folder` is one of FOLDERS; `kind` names such a file in messages;
    `listing` is the command that lists them, if any."""

    folder: str
    kind: str
    listing: str = ""


LABS = Catalog("labs", "lab", "rocelab labs")
DRILLS = Catalog("scripts", "drill", "rocelab drill list")
JOBS = Catalog("traffic", "file of jobs")
FLOWS = Catalog("traffic", "file of flows")
SERVERS = Catalog("servers", "server model")


def shipped_names(catalog: Catalog) -> tuple[str, ...]:
    """The names of the shipped files, in alphabetical order."""
    return tuple(sorted(_files_in(shipped(catalog.folder))))


def own_files(catalog: Catalog, tree: Path = Path()) -> dict[str, Path]:
    """The user's own files by name, in alphabetical order; none if the tree is that of the shipped
    files."""
    folder = tree / catalog.folder
    try:
        if folder.samefile(shipped(catalog.folder)):
            return {}
    except OSError:
        return {}
    return _files_in(folder)


def own_file(text: str, catalog: Catalog, tree: Path = Path()) -> Path | None:
    """The user's own file of that name, or None."""
    return own_files(catalog, tree).get(text) if _NAME.fullmatch(text) else None


def tree_of(file: Path) -> Path:
    """The tree of a file: the folder above its `labs/`, `scripts/`, `servers/` or `traffic/`, else
    its own folder."""
    if Path(os.path.normpath(file.absolute())).parent.name in FOLDERS:
        return Path(os.path.normpath(file.parent / ".."))
    return file.parent


def find_lab(text: str, tree: Path = Path(), folder: Path = Path()) -> Path:
    """The file of the lab that `text` names, as in `find`."""
    return find(text, LABS, tree, folder)


def find(text: str, catalog: Catalog, tree: Path = Path(), folder: Path = Path()) -> Path:
    """The file that `text` names: by a name, looked up in `tree`, then among the shipped files, or
    by a path relative to `folder`.

    Text with a slash or ending in .yaml or .yml is a path whether or not the file exists; reading
    it says so. Raises InputError, which says where to find the names, if there is no such file.
    """
    paths, ship = own_files(catalog, tree), shipped_names(catalog)
    if text in paths:
        return paths[text]
    if text in ship:
        return shipped(catalog.folder) / f"{text}.yaml"
    path = folder / text
    if "/" in text or path.suffix in (".yaml", ".yml") or S_ISREG(_mode(path)):
        return path
    names = sorted({*paths, *ship})
    listed = f"the names are {', '.join(names)}"
    if catalog.listing:
        listed = f"`{catalog.listing}` lists the names"
    meant = did_you_mean(text, names)
    if S_ISREG(_mode(folder / f"{text}.yaml")):
        meant = f"did you mean the path {text}.yaml?"
    no_file = "the path is a folder" if text and S_ISDIR(_mode(path)) else "no such file"
    raise InputError(
        f"there is no {catalog.kind} {shown(text)}, and {no_file}",
        f"{meant + ' ' if meant else ''}{listed}; give a file of your own by its path, "
        f"or by its name if it is {catalog.folder}/NAME.yaml",
    )


def _files_in(folder: Path) -> dict[str, Path]:
    files = {path.stem: path for path in sorted(folder.glob("*.yaml")) if S_ISREG(_mode(path))}
    return {name: path for name, path in files.items() if _NAME.fullmatch(name)}


def _mode(path: Path) -> int:
    """The mode of stat(2), 0 where nothing is or can be."""
    try:
        return path.stat().st_mode
    except (OSError, ValueError):
        return 0
