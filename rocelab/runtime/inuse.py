"""Reserves a lab that is up for one user at a time: a drill, a job, or faults by hand.

`in_use` holds the lab for a context, or raises an error that names the holder. The lock ends with
its process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rocelab.errors import InputError
from rocelab.runtime.record import RUN_ROOT, TURN, LabFiles, is_still_at, open_turn

MOST_BYTES = 200


@contextmanager
def in_use(files: LabFiles, what: str, *, shared: bool = False) -> Iterator[None]:
    """Hold the lab for `what`, such as `drill drain`; `shared` holders do not exclude each other.
    Raises InputError, naming the holder, if the lab is held, and if it is not up.
    """
    try:
        flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(files.root / "use.lock", flags, 0o600)
    except FileNotFoundError:
        raise InputError(f"lab {files.lab} is not up") from None
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, MOST_BYTES, 0).decode(errors="replace")
            raise InputError(
                f"lab {files.lab} is in use by {holder or 'another command'}",
                hint="drills, jobs and faults by hand would spoil each other: wait for it to end, "
                "or use another lab",
            ) from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{what}, process {os.getpid()}".encode()[:MOST_BYTES], 0)
        yield
    finally:
        os.close(descriptor)


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
