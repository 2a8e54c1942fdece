"""Reserves a lab that is up for one user at a time: a drill, a job, or faults by hand.

`in_use` holds the lab for a context, or raises an error that names the holder, which `user_of`
tells. The lock ends with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.record import RUN_ROOT, TURN, LabFiles, is_still_at, not_up, open_turn

MOST_BYTES = 200
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class User:
    """What has a lab for itself, such as `a drill`, and its process."""

    what: str
    pid: int


@contextmanager
def in_use(files: LabFiles, what: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the lab for `what`, such as `drill drain`; `shared` holders do not exclude each other.
    Raises InputError, naming the holder, if the lab is held, and if it is not up.
    """
    try:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(_lock_of(files), flags, 0o600)
    except FileNotFoundError:
        raise not_up(files.lab) from None
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, MOST_BYTES, 0).decode(errors="replace")
            raise InputError(
                f"lab {files.lab} is in use by {holder or 'another command'}",
                hint="drills, jobs and faults by hand would disturb each other: wait for it to "
                "end, "
                "or use another lab",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{what}, process {os.getpid()}".encode()[:MOST_BYTES], 0)
        yield
    finally:
        os.close(descriptor)


def user_of(files: LabFiles) -> User | None:
    """What holds the lab alone, None if nothing does.

    /proc/locks tells: to try the lock would turn away who takes it at that moment.
    """
    try:
        descriptor = os.open(_lock_of(files), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        file, text = os.fstat(descriptor), os.pread(descriptor, MOST_BYTES, 0)
    finally:
        os.close(descriptor)
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    what, _, pid = text.decode(errors="replace").rpartition(", process ")
    for line in _LOCKS.read_text().splitlines():
        # Whoever has taken the lock a moment ago has not written its name yet.
        if line.split()[1:6] == ["FLOCK", "ADVISORY", "WRITE", pid, place]:
            return User(what, int(pid))
    return None


def _lock_of(files: LabFiles) -> Path:
    return files.root / "use.lock"


@contextmanager
def turn() -> Iterator[None]:
    """Wait until no other process brings a lab up or measures on this machine, which would falsify
    measurements, and hold the turn. The turn ends with the process at the latest."""
    while True:
        descriptor = open_turn()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still_at(descriptor, RUN_ROOT / TURN):
                yield
                return
        finally:
            os.close(descriptor)
