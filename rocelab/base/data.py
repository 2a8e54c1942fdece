"""Locates the files that users read, copy and edit: labs, templates, drills and jobs.

A wheel carries them in the package; a checkout has them at its root.
"""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("labs", "servers", "templates", "scripts", "traffic")
PACKED = "_data"
"""The folder with the files in a wheel, in the package."""


def shipped(name: str) -> Path:
    """The shipped folder `name`: one of FOLDERS, or the switch models in `profiles`."""
    package = Path(__file__).parents[1]
    packed = package / PACKED
    return (packed if packed.is_dir() else package.parent) / name
