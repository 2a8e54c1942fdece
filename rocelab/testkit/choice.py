"""Chooses the labs of a test: from its marker or the command line.

    @pytest.mark.lab("zone-small", "my-lab.yaml", scope="session")

A lab is always the same object, wherever it is named: pytest compares objects to know whether two
tests share a lab.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, cast

from rocelab.base.errors import InputError
from rocelab.base.wording import listed, shown
from rocelab.labfile.catalog import find_lab

Scope = Literal["class", "module", "package", "session"]
SCOPES = ("class", "module", "package", "session")
USE = 'write @pytest.mark.lab("zone-small"), the name of a lab or the path of a YAML file'


def chosen_labs(
    names: Sequence[object], keywords: Mapping[str, object], folder: Path, root: Path
) -> tuple[tuple[Path, ...], Scope | None]:
    """The files of the labs that a marker names, and its scope if it gives one.

    A name is looked up in `labs/` of `root`, then among the shipped labs; a relative path starts at
    `folder`. Raises InputError for anything that is not a lab.
    """
    if not names:
        raise InputError("the marker lab names no lab", hint=USE)
    for name in names:
        if not isinstance(name, str):
            raise InputError(f"the marker lab expects names of labs, got {shown(name)}", hint=USE)
    unknown = [key for key in keywords if key != "scope"]
    if unknown:
        raise InputError(
            f"the marker lab has no argument {unknown[0]}", hint="its only one by name is scope"
        )
    files = tuple(find_lab(str(name), root, folder) for name in names)
    for file in files:
        if not file.is_file():
            raise InputError(
                f"there is no file {file}",
                hint="a path in the marker lab starts at the folder of the test's file",
            )
    if len(set(files)) < len(files):
        raise InputError("the marker lab names a lab twice", hint="name each once")
    return files, checked_scope(keywords["scope"]) if "scope" in keywords else None


def checked_scope(scope: object) -> Scope:
    """How long a lab stays up. Raises InputError if pytest has no such scope."""
    if scope not in SCOPES:
        raise InputError(
            f"a lab cannot have the scope {shown(scope)}", hint=f"it is one of {listed(SCOPES)}"
        )
    return cast(Scope, scope)


def title(file: Path) -> str:
    """The lab's name in a test's id."""
    return file.stem if file.suffix == ".yaml" else file.name
