"""Waiting until a file has grown, by the kernel's word (inotify(7)). Standard library only."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

IN_MODIFY = 0x2
"""include/uapi/linux/inotify.h"""


def watch_growth(path: Path) -> int:
    """A descriptor that is readable when the file was written to. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    watch: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(path), IN_MODIFY) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return watch
