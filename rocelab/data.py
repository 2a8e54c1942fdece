"""Where the files are that users read, copy and edit: labs, templates, drills and jobs.

A wheel carries them beside this file; a checkout has them at its root.
"""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("labs", "templates", "scripts", "traffic")
PACKED = "_data"
"""Beside this file, in a wheel: where they are."""


def shipped(name: str) -> Path:
    """That one of FOLDERS, as it ships."""
    here = Path(__file__).parent
    packed = here / PACKED
    return (packed if packed.is_dir() else here.parent) / name
