"""Names a suite's labs by the original lab and the owning process.

    zone-small  ->  zone-small-p4711

No other process uses such a name, so workers of pytest-xdist, concurrent suites and a manually
started `zone-small` do not collide. The names also show which labs an ended process left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from rocelab.labfile.base import MAX_NAME_LENGTH

_OF_A_PROCESS = re.compile(r"-p(\d+)[a-z]?$")
_LETTERS = " bcdefghijklmnopqrstuvwxyz"


def suite_name(lab: str, taken: Collection[str], pid: int | None = None) -> str:
    """A name for a lab of this process (or of `pid`) that is not among `taken`.

    Long names are cut to make room for the process within 24 characters. Raises ValueError if 26
    labs have the same cut name.
    """
    for letter in _LETTERS:
        ending = f"-p{os.getpid() if pid is None else pid}{letter.strip()}"
        name = lab[: MAX_NAME_LENGTH - len(ending)].rstrip("-") + ending
        if name not in taken:
            return name
    raise ValueError(f"26 labs of this process are called like {lab}")


def left_behind(labs: Iterable[str]) -> tuple[str, ...]:
    """The names of labs of suites whose process is gone."""
    matches = ((name, _OF_A_PROCESS.search(name)) for name in labs)
    return tuple(name for name, of in matches if of and not Path(f"/proc/{of[1]}").exists())
