"""A folder of evidence while it is filled: its files, and what could not be read and why.

Keeps files and frozen records of them. A failed read is a gap and never an error: evidence is
collected when things are broken.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath

from rocelab.base.errors import RocelabError
from rocelab.base.outputs import Folder

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


class EvidenceFolder:
    """Keeps files in the folder `name` of a bundle."""

    def __init__(self, bundle: Folder, name: str) -> None:
        """Makes the folder. Raises OSError."""
        self.folder = bundle.below(name, mode=0o700)
        self._name = PurePath(name)
        self.items: list[Item] = []
        self.gaps: list[Gap] = []

    def keep(self, name: str, what: str, read: Callable[[], str | bytes]) -> bool:
        """Keep the result of `read` under `name`; False, and a gap, if it cannot be read."""
        try:
            content = read()
        except (OSError, subprocess.SubprocessError, RocelabError, ValueError) as error:
            self.miss(name, what, _reason(error))
            return False
        self.folder.replace(name, content, 0o600)
        self.note(name, what)
        return True

    def note(self, name: str, what: str) -> None:
        """Record a file that is in the folder already."""
        self.items.append(Item(str(self._name / name), what, self.folder.size(name)))

    def miss(self, name: str, what: str, why: str) -> None:
        """Record something that could not be read."""
        self.gaps.append(Gap(str(self._name / name), what, why))


def _reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"no answer within {error.timeout:g} s"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    text = error.message if isinstance(error, RocelabError) else str(error)
    return text or type(error).__name__
