"""Turns an exception for a refusal by the machine into an error that a user can act on.

The `MachineError` says what, where and what to do. There is none for what a defect of this program
more likely caused, such as a missing file.
"""

from __future__ import annotations

import errno
import os

from rocelab.base.errors import MachineError
from rocelab.base.extras import missing

_MEMORY_ADVICE = "ask for less, or free memory; `ulimit -v` shows the limit of a process"
_ADVICE = {
    errno.ENOSPC: "make room there, or name another place",
    errno.EDQUOT: "make room there, or name another place",
    errno.EROFS: "mount it writable, or name another place",
    errno.EMFILE: "raise the limit with `ulimit -n`",
    errno.ENOMEM: _MEMORY_ADVICE,
    errno.ENFILE: "raise the limit with `sysctl fs.file-max`",
}


def _denied() -> str:
    """What to do without a right; root has sudo already."""
    first = "root lacks a right here" if os.geteuid() == 0 else "run it with sudo"
    return f"{first}; `rocelab doctor` lists what this machine does not allow"


def refusal(error: BaseException) -> MachineError | None:
    """The error for the user, None if it is not the machine's refusal."""
    if isinstance(error, MemoryError):
        return MachineError("there is not enough memory for it", _MEMORY_ADVICE)
    if isinstance(error, ModuleNotFoundError):
        return missing(error)
    if not isinstance(error, OSError):
        return None
    advice = _denied() if isinstance(error, PermissionError) else _ADVICE.get(error.errno or 0)
    if advice is None:
        return None
    where = f"{error.filename}: " if error.filename is not None else ""
    return MachineError(
        f"the machine refused it: {where}{error.strerror}",
        f"{advice} (`rocelab --debug` shows where it was refused)",
    )
