"""The process that starts a run's programs in a lab's servers and outlives none of them.

`python -m rocelab.programs.supervisor EVENTS` reads a plan, one line of JSON, from its standard
input, and starts each program in its node as a process group of its own. It reports on the
descriptor EVENTS, a line of JSON each, what could not be started and what has ended. Every other
line of its input is the number of a signal for the programs that still run.

The programs live in a pid_namespaces(7) whose process 1 this is. They and all that they have
started are killed by the kernel when it ends: after the last program, at the end of its standard
input, and with its starter, however that ends. Standard library and `rocelab.linux` only.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rocelab.linux import machines, mounts, namespaces
from rocelab.linux.namespaces import check

_PR_SET_PDEATHSIG = 1
_MOST_BYTES = 1 << 16
NOT_STARTED, NO_SUCH_PROGRAM = 126, 127
"""Exit codes of shells."""

_libc = ctypes.CDLL(None, use_errno=True)


def main(events: int) -> None:
    """Run the programs of the plan on standard input, and return when all have ended."""
    pieces = [b""]
    while b"\n" not in pieces[-1]:
        pieces.append(os.read(0, _MOST_BYTES))
        if not pieces[-1]:
            return
    # Who starts this may have blocked some: neither ends of programs nor their signals would come.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    namespaces.unshare_processes()
    if child := os.fork():
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whoever reads outputs is to see their end
        os.waitpid(child, 0)
        return
    check(_libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL), "prctl")
    line, _, rest = b"".join(pieces).partition(b"\n")
    _Supervisor(events, json.loads(line)["programs"], rest).serve()


class _Supervisor:
    """Process 1: starts the programs, passes signals on, and reaps what ends."""

    def __init__(self, events: int, plan: list[dict[str, Any]], commands: bytes) -> None:
        self._events, self._commands = events, commands
        self._waking, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        outputs = [end for program in plan for end in program["outputs"]]
        self._running: dict[int, int] = {}
        for rank, program in enumerate(plan):
            pid = os.fork()
            if pid == 0:
                self._become(rank, program, outputs)
            self._running[pid] = rank
        for end in outputs:
            os.close(end)

    def serve(self) -> None:
        """Return when every program has ended, or the input has."""
        while self._running:
            ready, _, _ = select.select([0, self._waking], [], [])
            if self._waking in ready:
                os.read(self._waking, _MOST_BYTES)
            self._reap()
            if 0 in ready:
                piece = os.read(0, _MOST_BYTES)
                if not piece:
                    return
                self._commands += piece
            *whole, self._commands = self._commands.split(b"\n")
            for number in whole:
                self._signal(int(number))

    def _signal(self, number: int) -> None:
        for pid in self._running:
            with suppress(ProcessLookupError):  # it has no group of its own yet
                os.killpg(pid, number)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid in self._running:
                    rank = self._running.pop(pid)
                    self._say({"rank": rank, "code": os.waitstatus_to_exitcode(status)})

    def _say(self, event: Mapping[str, object]) -> None:
        os.write(self._events, json.dumps(event).encode() + b"\n")

    def _become(self, rank: int, program: dict[str, Any], outputs: list[int]) -> None:
        """Replace this process, a child, by a program. Does not return."""
        code, failed = NOT_STARTED, ""
        try:
            self._prepare(program, outputs)
            argv = program["argv"]
            try:
                os.execvpe(argv[0], argv, program["environment"])  # noqa: S606
            except OSError as error:
                code, failed = _not_executed(argv[0], error)
        except OSError as error:
            failed = _said(error)
        except ValueError as error:  # a zero byte in an argument or a variable
            failed = str(error)
        finally:
            self._say({"rank": rank, "failed": failed})
            os._exit(code)

    def _prepare(self, program: dict[str, Any], outputs: list[int]) -> None:
        """Turn this process into one of the program's server, with its outputs and folder. Raises
        OSError."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        os.set_inheritable(self._events, False)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, source in enumerate((nothing, *program["outputs"])):
            os.dup2(source, target)
        for end in outputs:
            os.close(end)
        os.chdir(program["folder"])
        view, hosts = Path(program["view"]), Path(program["hosts"])
        machines.enter(Path(program["netns"]), program["node"], view, hosts)
        mounts.show_processes()


def _not_executed(program: str, error: OSError) -> tuple[int, str]:
    """The exit code for a program that execve(2) refused, and why."""
    is_path = os.sep in program
    if error.errno == errno.ENOENT:
        if is_path and Path(program).exists():
            return NO_SUCH_PROGRAM, f"{program}: its first line names no program of this machine"
        return NO_SUCH_PROGRAM, f"there is no program {program}"
    if is_path and Path(program).is_file():
        if error.errno == errno.EACCES:
            return NOT_STARTED, f"{program} is not executable: chmod +x, or `sh {program}`"
        if error.errno == errno.ENOEXEC:
            return NOT_STARTED, f"{program} is no executable: a script begins with #!/bin/sh"
    return NOT_STARTED, _said(error)


def _said(error: OSError) -> str:
    return f"{error.strerror}: {os.fsdecode(error.filename or b'')}".removesuffix(": ")


if __name__ == "__main__":
    main(int(sys.argv[1]))
