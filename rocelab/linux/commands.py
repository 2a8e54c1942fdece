"""Runs a command and collects its output, until the command itself ends.

A process that the command has left in the background may hold the same pipes for hours: what it
writes later belongs to nobody, so the end of the command counts and not that of the pipes
(`subprocess.run` waits for both). The command runs in a session of its own without input.
"""

from __future__ import annotations

import array
import fcntl
import os
import selectors
import signal
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO

_CHUNK = 1 << 16


class LateError(TimeoutError):
    """A command did not end in time: it and its process group were killed."""


class Command:
    """A command that `run` starts, and that another thread may `end`."""

    def __init__(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        """`environment` replaces all variables, if not None."""
        self._argv = argv
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._is_over = False
        self._lock = threading.Lock()

    def run(self, timeout_s: float) -> subprocess.CompletedProcess[str]:
        """Start it, and return its output when it has ended.

        Raises OSError if it does not start, LateError if it runs for longer than `timeout_s`.
        """
        with self._lock:
            if self._is_over:
                raise InterruptedError("nobody waits for the command any more")
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._environment,
                start_new_session=True,
            )
        process = self._process
        assert process.stdout is not None and process.stderr is not None
        outputs = {process.stdout: bytearray(), process.stderr: bytearray()}
        try:
            with process.stdout, process.stderr:
                in_time = _collect(process.pid, outputs, time.monotonic() + timeout_s)
        finally:
            self.end()
        if not in_time:
            raise LateError(f"it did not end within {timeout_s:g} s")
        out, err = (bytes(data).decode(errors="replace") for data in outputs.values())
        return subprocess.CompletedProcess(self._argv, process.returncode, out, err)

    def end(self) -> None:
        """Kill it and its process group if it still runs. Idempotent."""
        with self._lock:
            self._is_over = True
            process = self._process
            if process is None or process.returncode is not None:
                return
            # Until it is reaped here, its id is that of no other process or group.
            if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _collect(pid: int, outputs: Mapping[IO[bytes], bytearray], deadline_s: float) -> bool:
    """Fill the outputs until the process ends: whether it did before the deadline."""
    ended = os.pidfd_open(pid)
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(ended, selectors.EVENT_READ)
            for pipe in outputs:
                selector.register(pipe, selectors.EVENT_READ)
            while (left_s := deadline_s - time.monotonic()) > 0:
                ready = {key.fileobj for key, _ in selector.select(left_s)}
                if ended in ready:
                    break
                for pipe in outputs.keys() & ready:
                    chunk = os.read(pipe.fileno(), _CHUNK)
                    outputs[pipe] += chunk
                    if not chunk:
                        selector.unregister(pipe)
            else:
                return False
    finally:
        os.close(ended)
    for pipe, data in outputs.items():
        data += _waiting(pipe)
    return True


def _waiting(pipe: IO[bytes]) -> bytes:
    """What was written to a pipe and not yet read: no more, as another process may write on."""
    count = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, count)
    return os.read(pipe.fileno(), count[0]) if count[0] else b""
