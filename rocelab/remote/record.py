"""Records of the runs that this machine began elsewhere, until their results are fetched.

Results go where the local command line said, not where the other machine says. Each run has a small
JSON file in the user's state folder.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from rocelab.base.outputs import open_folder


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A run that was begun from this machine."""

    run: str
    host: str
    outputs: tuple[str, ...]
    """Places in the mirror of this machine's file system to fetch."""


def _file(run: str) -> Path:
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "rocelab/runs" / f"{run}.json"


def remember(begun: StartedRun) -> None:
    """Record a run. Raises OSError."""
    file = _file(begun.run)
    with open_folder(file.parent, make=True) as folder:
        folder.replace(file.name, json.dumps(asdict(begun)))


def remembered(run: str) -> StartedRun | None:
    """The record of a run; None if it was not begun from this machine."""
    try:
        fields = json.loads(_file(run).read_text())
    except (OSError, ValueError):
        return None
    return StartedRun(**{**fields, "outputs": tuple(fields["outputs"])})


def forget(run: str) -> None:
    _file(run).unlink(missing_ok=True)
