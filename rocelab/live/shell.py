"""The process that keeps a terminal's program in a node, and ends it with all that it has started.

Runs as a program beside the server (`rocelab.live.terminal`). It ends with its own program, or at
the end of its standard input, whose other end the server holds.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from typing import NoReturn

from rocelab.base.errors import RocelabError
from rocelab.linux.processes import children_of, kill_and_wait

_PR_SET_CHILD_SUBREAPER = 36


def main(terminal: int, lab: str, node: str, program: str) -> None:
    """Run a program in a node at the slave end `terminal`."""
    # What the program has started and left comes to this process, which ends it.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = os.fork()
    if child == 0:
        os.login_tty(terminal)
        _become(lab, node, program)
    os.close(terminal)
    select.select([sys.stdin, os.pidfd_open(child)], [], [])
    while _has_children():
        kill_and_wait(children_of(os.getpid()))


def _become(lab: str, node: str, program: str) -> NoReturn:
    from rocelab.lab.lab import RunningLab

    del os.environ["PYTHONPATH"]  # of this process (`module_environment`)
    os.environ["TERM"] = "xterm-256color"
    try:
        handle = RunningLab.open(lab).node(node)
        arguments, environment = handle.shell() if program == "shell" else (handle.command_line, {})
        handle.become(arguments, environment)
    except (RocelabError, OSError) as error:
        raise SystemExit(f"{program} of {node}: {error}") from None


def _has_children() -> bool:
    """Whether there are any; those that have ended are reaped."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
