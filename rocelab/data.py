"""Where the files are that users read, copy and edit: labs, templates, drills and jobs.

A wheel carries them beside this file; a checkout has them at its root.
"""

from __future__ import annotations

from pathlib import Path

_PACKED = Path(__file__).parent / "_data"


def shipped(name: str) -> Path:
    """The folder `labs`, `templates`, `scripts` or `traffic` that ships."""
    root = _PACKED if _PACKED.is_dir() else Path(__file__).parents[1]
    return root / name
