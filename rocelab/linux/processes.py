"""Kills, stops and continues processes by pidfd.

A pidfd always refers to the same process, so that a signal never reaches another one that has
reused the id.
"""

from __future__ import annotations

import errno
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.linux.bracket import Bracket, realtime_ns, spanning

KILL_TIMEOUT_S = 10.0
STOP_TIMEOUT_S, STOP_STEP_S = 10.0, 0.0001
MOST_AT_ONCE = 256
"""Processes that are killed before any is awaited: each takes a file descriptor until it is gone,
and a limit of 1024 descriptors is common."""


def kill_and_wait(
    pids: Iterable[int], is_meant: Callable[[int], bool] = lambda _: True
) -> Bracket | None:
    """SIGKILL each process and return when all are gone: the time from the first signal until then,
    None if there was none. Raises MachineError if one stays.

    Only processes for which `is_meant` is true: it is called once the id cannot be reused.
    """
    left: Sequence[int] = list(pids)
    brackets: list[Bracket] = []
    while left:
        left = _kill_some(left, is_meant, brackets)
    return spanning(brackets) if brackets else None


def _kill_some(
    pids: Sequence[int], is_meant: Callable[[int], bool], brackets: list[Bracket]
) -> Sequence[int]:
    """Kill as many as there are descriptors for. Returns the others."""
    waiting: dict[int, int] = {}
    rest: Sequence[int] = ()
    poll = select.poll()
    first_ns: int | None = None
    try:
        for place, pid in enumerate(pids):
            if len(waiting) == MOST_AT_ONCE:
                rest = pids[place:]
                break
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            except OSError as error:
                if error.errno != errno.EMFILE or not waiting:
                    raise
                rest = pids[place:]
                break
            if not is_meant(pid):
                os.close(descriptor)
                continue
            waiting[descriptor] = pid
            poll.register(descriptor, select.POLLIN)
            first_ns = realtime_ns() if first_ns is None else first_ns
            # A process that ended since and was reaped gets no signal; poll finds it ended.
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
        if first_ns is not None:
            brackets.append(Bracket(first_ns, realtime_ns()))
    finally:
        for descriptor in waiting:
            os.close(descriptor)
    return rest


def stop(pids: Iterable[int], is_meant: Callable[[int], bool] = lambda _: True) -> Bracket | None:
    """SIGSTOP each process that still exists, if `is_meant` as in `kill_and_wait`. Returns when
    they stopped, None if there was none. Raises MachineError if one goes on.

    It waits for each: the kernel stops a process that runs on another CPU a moment after the
    signal, and one that waits for a CPU when it gets one.
    """
    sent = _signal(pids, signal.SIGSTOP, is_meant)
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for pid in sent:
        while is_running(pid):
            if time.monotonic() > deadline:
                raise MachineError(f"process {pid} does not stop on SIGSTOP")
            time.sleep(STOP_STEP_S)
    before = spanning([*sent.values()]) if sent else None
    return Bracket(before.before_ns, realtime_ns()) if before else None


def resume(pids: Iterable[int]) -> Bracket | None:
    """SIGCONT each process that still exists. Returns when, None if there was none."""
    sent = _signal(pids, signal.SIGCONT, lambda _: True)
    return spanning([*sent.values()]) if sent else None


def is_stopped(pid: int) -> bool:
    """Whether a signal has stopped the process; False if it does not exist.

    A process in an uninterruptible wait, such as the parent of a vfork(2) whose child was stopped,
    counts as stopped once signalled: it stops when its wait is over.
    """
    state = _state(pid)
    return state == "T" or (state == "D" and _is_asked_to_stop(pid))


def name_of(pid: int) -> str:
    """The name of a process (proc_pid_comm(5)), empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""


def status_of(pid: int) -> Mapping[str, str]:
    """The fields of /proc/PID/status by name, empty if the process does not exist. The process
    chooses its name: any bytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(errors="replace").split("\n")
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def environment_of(pid: int) -> list[str]:
    """The variables that a process was started with, as `NAME=value` (proc_pid_environ(5)), empty
    if it does not exist."""
    try:
        return Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
    except OSError:
        return []


def children_of(pid: int) -> list[int]:
    """The processes whose parent it is."""
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [child for child in pids if status_of(child).get("PPid") == str(pid)]


def direct_children(pid: int) -> list[int]:
    """The children of a process with one thread, without a look at all others; none if it does not
    exist, or where the kernel does not tell (CONFIG_PROC_CHILDREN)."""
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:
        return []


def is_alive(pid: int) -> bool:
    """Whether the process exists and is not dead; it may be stopped."""
    return _state(pid) not in ("", "Z", "X")


def is_running(pid: int) -> bool:
    """Whether the process exists and is neither stopped nor dead."""
    return _state(pid) not in ("", "T", "t", "Z", "X") and not is_stopped(pid)


def _is_asked_to_stop(pid: int) -> bool:
    status = status_of(pid)
    pending = (int(status.get(field, "0"), 16) for field in ("SigPnd", "ShdPnd"))
    return any(signals >> (signal.SIGSTOP - 1) & 1 for signals in pending)


def _state(pid: int) -> str:
    """The process's state as in proc(5), empty if it does not exist."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(") ")[2][:1]
    except OSError:
        return ""


def _signal(
    pids: Iterable[int], number: signal.Signals, is_meant: Callable[[int], bool]
) -> Mapping[int, Bracket]:
    """When each process that exists and is meant was signalled."""
    sent = {}
    for pid in pids:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if is_meant(pid):
                sent[pid] = Bracket.of(partial(signal.pidfd_send_signal, descriptor, number))
        except ProcessLookupError:
            continue
        finally:
            os.close(descriptor)
    return sent
