"""What a suite's labs are called: by the lab they are of and the process that answers for them.

    zone-small  ->  zone-small-p4711

In: a lab's own name. Out: one that no other process takes, so that the workers of pytest-xdist, two
suites at once and a `zone-small` that somebody runs by hand stay apart; and which labs a process
that is gone has left.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from rocelab.spec.base import MAX_NAME_LENGTH

_OF_A_PROCESS = re.compile(r"-p(\d+)[a-z]?$")
_LETTERS = " bcdefghijklmnopqrstuvwxyz"


def suite_name(lab: str, taken: Collection[str], pid: int | None = None) -> str:
    """A name for a lab of this process (or of `pid`) that is not among `taken`.

    Long names are cut: 24 characters hold the process as well. Raises ValueError where 26 labs have
    names that are the same once cut.
    """
    for letter in _LETTERS:
        ending = f"-p{os.getpid() if pid is None else pid}{letter.strip()}"
        name = lab[: MAX_NAME_LENGTH - len(ending)].rstrip("-") + ending
        if name not in taken:
            return name
    raise ValueError(f"26 labs of this process are called like {lab}")


def left_behind(labs: Iterable[str]) -> tuple[str, ...]:
    """Of the names of labs, those of suites whose process is gone."""
    found = ((name, _OF_A_PROCESS.search(name)) for name in labs)
    return tuple(name for name, of in found if of and not Path(f"/proc/{of[1]}").exists())
