"""Finds a process by the lock that it holds on a file.

The lock goes with the process, however it ends, and the kernel knows its owner (fcntl(2), F_GETLK),
so it never refers to another process. Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
from pathlib import Path
from typing import TextIO

from rocelab.base.errors import MachineError

_FLOCK = struct.Struct("hh4xqqi4x")


def claim(file: Path) -> TextIO:
    """The file, locked until it is closed or this process ends.

    Raises BlockingIOError if another process holds it, FileNotFoundError if it is gone.
    """
    held = file.open("r+")
    try:
        fcntl.lockf(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        held.close()
        raise
    return held


def holder(file: Path) -> int | None:
    """The process that holds the file, or None."""
    try:
        with file.open() as opened:
            asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(opened, fcntl.F_GETLK, asked))
    except FileNotFoundError:
        return None
    return None if kind == fcntl.F_UNLCK else pid


def tell(file: Path, number: signal.Signals) -> bool:
    """Send a signal to the holder; whether there is one."""
    pid = holder(file)
    if pid is None:
        return False
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def end(file: Path, timeout_s: float) -> None:
    """End the holder: SIGTERM, which it gets even if a signal has stopped it, then SIGKILL if it
    does not end within `timeout_s`.

    Raises MachineError if it does not end.
    """
    pid = holder(file)
    if pid is None:
        return
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number in (signal.SIGTERM, signal.SIGKILL):
            signal.pidfd_send_signal(process, number)
            signal.pidfd_send_signal(process, signal.SIGCONT)
            if select.select([process], [], [], timeout_s)[0]:
                return
        raise MachineError(f"process {pid} does not end")
    except ProcessLookupError:
        pass
    finally:
        os.close(process)
