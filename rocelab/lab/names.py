"""The names by which users call labs.

Loads no model of a lab's file, which a command on a lab that is up seldom needs.
"""

from __future__ import annotations

from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.labfile.base import is_name
from rocelab.labfile.catalog import find_lab
from rocelab.record import recorded_labs


def name_of(text: str | Path) -> str:
    """The name of the lab that a user calls `text`: that of a lab with a record here, running or
    left behind, or else the name in its file, even if the rest of the file is invalid.

    If `text` is no file but a valid name, it is the name of a lab that is not up. Raises SpecError
    for a file without a name, InputError for any other text.
    """
    name = str(text)
    if name in recorded_labs():
        return name
    try:
        path = find_lab(name)
    except InputError:
        if not is_name(name):
            raise
        return name
    from rocelab.labfile.load import read_name

    return read_name(path)
