"""Answers of routing daemons, which come over a socket in the daemons' own folder and in time."""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
import time

from rocelab.base.files import UntrustedFileError
from rocelab.base.workers import in_vain
from rocelab.routing.files import DaemonFiles

ANSWER_TIMEOUT_S = 30.0
ANSWER_STEP_S = 0.1
"""How often a wait for an answer checks whether its thread was cancelled."""


class UnreadableAnswerError(OSError):
    """A daemon's answer has the wrong shape: the daemon may have been taken over."""

    def __init__(self, files: DaemonFiles, daemon: str, why: str) -> None:
        super().__init__(f"the answer of {daemon} of {files.folder.name} cannot be read: {why}")


def connect(control: socket.socket, files: DaemonFiles, daemon: str) -> None:
    """Connect to a daemon's socket. Raises OSError."""
    descriptor = files.open_control(daemon)
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            raise UntrustedFileError(errno.ENOTSOCK, "is not a socket", files.control(daemon).name)
        control.connect(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)


def await_bytes(control: socket.socket, deadline_s: float) -> None:
    """Return when there is something to read. Raises OSError at the deadline or when cancelled."""
    poll = select.poll()
    poll.register(control, select.POLLIN)
    while not in_vain():
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the daemon's answer does not come in time")
        if poll.poll(min(left_s, ANSWER_STEP_S) * 1000):
            return
    raise InterruptedError("nobody waits for the daemon's answer any more")
