"""Processes ended, stopped and continued, each by a descriptor of its own.

In: process ids. A pidfd names one process for good, so that none is hit that took the id of one
that has ended meanwhile.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from labs.errors import MachineError

KILL_TIMEOUT_S = 10.0


def kill_and_wait(pids: Iterable[int]) -> None:
    """SIGKILL each process and return when all are gone. Raises MachineError if one stays."""
    waiting: dict[int, int] = {}
    poll = select.poll()
    try:
        for pid in pids:
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            waiting[descriptor] = pid
            poll.register(descriptor, select.POLLIN)
            # One that ended since, and was waited for, can not be told; poll finds it ended.
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        deadline = time.monotonic() + KILL_TIMEOUT_S
        while waiting:
            ready = poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
            if not ready:
                raise MachineError(f"processes {sorted(waiting.values())} do not end on SIGKILL")
            for descriptor, _ in ready:
                poll.unregister(descriptor)
                os.close(descriptor)
                del waiting[descriptor]
    finally:
        for descriptor in waiting:
            os.close(descriptor)


def stop(pids: Iterable[int]) -> None:
    """SIGSTOP each process that is still there."""
    _signal(pids, signal.SIGSTOP)


def resume(pids: Iterable[int]) -> None:
    """SIGCONT each process that is still there."""
    _signal(pids, signal.SIGCONT)


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process; False where there is none.

    One that waits in the kernel and can not be interrupted, as the parent of a vfork(2) whose child
    has been stopped, counts as stopped once it has been told to: it stops when its wait is over.
    """
    state = _state(pid)
    return state == "T" or (state == "D" and _is_told_to_stop(pid))


def is_running(pid: int) -> bool:
    """Whether the process is there and would go on by itself: neither stopped nor dead."""
    return _state(pid) not in ("", "T", "t", "Z", "X") and not is_stopped(pid)


def _is_told_to_stop(pid: int) -> bool:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    pending = (int(line.split()[1], 16) for line in lines if line.startswith(("SigPnd", "ShdPnd")))
    return any(each >> (signal.SIGSTOP - 1) & 1 for each in pending)


def _state(pid: int) -> str:
    """The process's state as in proc(5), nothing where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return ""


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)
