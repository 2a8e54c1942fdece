"""Reserves a lab that is up for one user at a time: a drill, a job, or faults by hand.

`in_use` holds the lab for a context, or raises an error that names the holder, which `user_of`
tells. The locks end with their process, however that ends.

There are two. `use.lock` excludes measurements and faults by hand from each other; `traffic.lock`
excludes two senders from each other where faults are allowed beside them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
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

    def __str__(self) -> str:
        return f"{self.what}, process {self.pid}"


class Use(Enum):
    """What a use of a lab tolerates beside it.

    `ALONE`: nothing. `UNDER_FAULTS`: faults by hand, and no other traffic. `FAULT`: other faults,
    and traffic that allows them. `UNSENT`: faults by hand, while nobody sends. `PROGRAM`: all but
    what measures the lab alone.
    """

    ALONE = "alone"
    UNDER_FAULTS = "under faults"
    FAULT = "fault"
    UNSENT = "unsent"
    PROGRAM = "program"


_USE, _TRAFFIC = "use.lock", "traffic.lock"
_LOCKS_OF: Mapping[Use, Mapping[str, int]] = {
    Use.ALONE: {_USE: fcntl.LOCK_EX},
    Use.UNDER_FAULTS: {_USE: fcntl.LOCK_SH, _TRAFFIC: fcntl.LOCK_EX},
    Use.FAULT: {_USE: fcntl.LOCK_SH},
    Use.UNSENT: {_USE: fcntl.LOCK_SH, _TRAFFIC: fcntl.LOCK_SH},
    Use.PROGRAM: {_USE: fcntl.LOCK_SH},
}
_HINTS = {
    Use.FAULT: "wait for it to end, or break the lab under traffic that allows it: send that with "
    "`rocelab traffic --allow-faults`, or from the page of `rocelab live`; a drill takes faults in "
    "its file"
}
_HINT = (
    "drills, jobs and faults by hand would disturb each other: wait for it to end, or use another "
    "lab"
)


@contextmanager
def in_use(files: LabFiles, what: str, use: Use = Use.ALONE) -> Iterator[None]:
    """Hold the lab for `what`, such as `drill drain`. Raises InputError, naming the holder, if the
    lab is held by what `use` does not tolerate, and if it is not up.
    """
    with ExitStack() as held:
        for name, mode in _LOCKS_OF[use].items():
            descriptor = _opened(files, name)
            held.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
            except BlockingIOError:
                raise _refusal(files, descriptor, use) from None
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{what}, process {os.getpid()}".encode()[:MOST_BYTES], 0)
        yield


def _opened(files: LabFiles, name: str) -> int:
    try:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(files.root / name, flags, 0o600)
    except FileNotFoundError:
        raise not_up(files.lab) from None


def _refusal(files: LabFiles, descriptor: int, use: Use) -> InputError:
    # A fault beside traffic that allows it may have written its own name since.
    sender = _holder(files, _TRAFFIC)
    holder = str(sender or _holder_of(descriptor, ("READ", "WRITE")) or "another command")
    return InputError(f"lab {files.lab} is in use by {holder}", _HINTS.get(use, _HINT))


def user_of(files: LabFiles) -> User | None:
    """What holds the lab alone, or sends in it beside faults; None if nothing does.

    /proc/locks tells: to try the lock would turn away who takes it at that moment.
    """
    return _holder(files, _USE) or _holder(files, _TRAFFIC)


def _holder(files: LabFiles, name: str) -> User | None:
    """What holds a lock exclusively."""
    try:
        descriptor = os.open(files.root / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        return _holder_of(descriptor, ("WRITE",))
    finally:
        os.close(descriptor)


def _holder_of(descriptor: int, kinds: Collection[str]) -> User | None:
    """What holds a lock in one of these ways, if it has written its name."""
    file, text = os.fstat(descriptor), os.pread(descriptor, MOST_BYTES, 0)
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    what, _, pid = text.decode(errors="replace").rpartition(", process ")
    held = {tuple(line.split()[1:6]) for line in _LOCKS.read_text().splitlines()}
    # Whoever has taken the lock a moment ago has not written its name yet; one of several that
    # share it may have gone.
    if any(("FLOCK", "ADVISORY", kind, pid, place) in held for kind in kinds):
        return User(what, int(pid))
    return None


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
