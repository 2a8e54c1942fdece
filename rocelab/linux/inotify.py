"""Waits until a file has grown, or a folder's files have changed (inotify(7)).

Standard library only. Numbers are those of include/uapi/linux/inotify.h.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

IN_MODIFY = 0x2
IN_CLOSE_WRITE, IN_MOVED_TO, IN_DELETE = 0x8, 0x80, 0x200


def watch(path: Path, events: int = IN_MODIFY) -> int:
    """A descriptor that becomes readable on one of the events, by default a write to the file.
    Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0 or libc.inotify_add_watch(descriptor, os.fsencode(path), events) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"inotify on {path}: {os.strerror(number)}")
    return descriptor
