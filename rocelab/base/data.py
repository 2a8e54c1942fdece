"""Locates the files that users read, copy and edit: labs, templates, drills and jobs.

A wheel carries them beside this file; a checkout has them at its root.
"""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("labs", "templates", "scripts", "traffic")
PACKED = "_data"
"""The folder with the files in a wheel, beside this file."""


def shipped(name: str) -> Path:
    """The shipped folder `name`, one of FOLDERS."""
    here = Path(__file__).parent
    packed = here / PACKED
    return (packed if packed.is_dir() else here.parent) / name
