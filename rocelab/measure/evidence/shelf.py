"""A folder of evidence while it is filled: its files, and what could not be read and why.

Keeps files and frozen records of them. A failed read is a gap and never an error: evidence is
collected when things are broken.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rocelab.errors import RocelabError
from rocelab.files import make_folders, write_file

MOST_BYTES = 4 << 20
"""The most that is kept of a file. A growing one, such as a log, keeps its end."""


@dataclass(frozen=True, slots=True)
class Item:
    """A file of a bundle, its path relative to the bundle, and what it holds."""

    file: str
    what: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Gap:
    """What could not be read, and why."""

    file: str
    what: str
    why: str


class Shelf:
    """Keeps files in `folder`, below the bundle's root."""

    def __init__(self, root: Path, folder: Path) -> None:
        """Makes the folder. Raises OSError."""
        make_folders(folder, 0o700)
        self.folder = folder
        self._root = root
        self.items: list[Item] = []
        self.gaps: list[Gap] = []

    def keep(self, name: str, what: str, read: Callable[[], str | bytes]) -> bool:
        """Keep the result of `read` under `name`; False, and a gap, if it cannot be read."""
        try:
            content = read()
        except (OSError, subprocess.SubprocessError, RocelabError, ValueError) as error:
            self.miss(name, what, _reason(error))
            return False
        path = self.folder / name
        write_file(path, content, 0o600)
        self.note(name, what)
        return True

    def note(self, name: str, what: str) -> None:
        """Record a file that is in the folder already."""
        path = self.folder / name
        self.items.append(Item(str(path.relative_to(self._root)), what, path.stat().st_size))

    def miss(self, name: str, what: str, why: str) -> None:
        """Record something that could not be read."""
        self.gaps.append(Gap(str((self.folder / name).relative_to(self._root)), what, why))


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:g} s"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.message if isinstance(error, RocelabError) else str(error)
    return text or type(error).__name__
