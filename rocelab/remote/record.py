"""What this machine remembers of the runs it began elsewhere, until their results are back.

The other machine is not asked where its files go: they go where the command line here said. In
and out: a small JSON file per run in the user's state folder.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that was begun from here."""

    run: str
    host: str
    outputs: tuple[str, ...]
    """Places in the mirror of this machine's file system that are brought back."""


def _file(run: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "rocelab/runs" / f"{run}.json"


def remember(begun: Begun) -> None:
    """Write a run down. Raises OSError."""
    file = _file(begun.run)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(begun)))


def remembered(run: str) -> Begun | None:
    """None for a run that was not begun from here."""
    try:
        fields = json.loads(_file(run).read_text())
    except (OSError, ValueError):
        return None
    return Begun(**{**fields, "outputs": tuple(fields["outputs"])})


def forget(run: str) -> None:
    _file(run).unlink(missing_ok=True)
