"""Runs modules of this package as processes beside a lab: launches, finds, awaits and ends them.

`launch` launches all of them. Processes that outlive their command (controller, delay line) use
`start`, which returns when they are ready, and `serving`: each holds its pid file
(`rocelab.linux.pidfile`), by which it is found and ended. Processes that end with their command
(agent, guardian) notice the end of their standard input.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from rocelab.base.errors import MachineError
from rocelab.base.files import write_file
from rocelab.base.interpreter import module_command, module_environment
from rocelab.linux import namespaces, pidfile

STOP_TIMEOUT_S = 10.0
LAST_LINES = 5


def launch(
    module: str,
    *arguments: str,
    stdin: int = subprocess.DEVNULL,
    errors: int | IO[bytes] = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    site: bool = True,
) -> subprocess.Popen[bytes]:
    """Run a module as a process in a session of its own, which terminal signals do not reach.

    `site`: whether it needs more than this package and the standard library.
    """
    return subprocess.Popen(
        module_command(module, *arguments, site=site),
        stdin=stdin,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        pass_fds=pass_fds,
        env=module_environment(),
        start_new_session=True,
    )


def start(
    what: str,
    module: str,
    arguments: Sequence[str],
    *,
    pid_file: Path,
    log: Path,
    netns: Path,
    timeout_s: float,
) -> int:
    """Start a module in a namespace. Returns its process id once it reports that it is ready.

    Its last two arguments are those of `serving`; `log` gets its standard error. Raises
    MachineError with the log's last lines if it does not start within `timeout_s`.
    """
    # Created here: a process whose starter was killed and cleaned up finds no file to claim.
    pid_file.touch(mode=0o600)
    write_file(log, b"", 0o600)
    reading, writing = os.pipe()

    def launched() -> subprocess.Popen[bytes]:
        with log.open("ab") as errors:
            numbered = (*arguments, str(pid_file), str(writing))
            return launch(module, *numbered, errors=errors, pass_fds=(writing,))

    with os.fdopen(reading, "rb", buffering=0) as ready:
        try:
            process = namespaces.inside(netns, launched)
        finally:
            os.close(writing)
        with process:
            in_time = bool(select.select([ready], [], [], timeout_s)[0])
            if in_time and ready.read(1):
                pid = pidfile.holder(pid_file)
                if pid is not None:
                    return pid
            process.kill()
    pidfile.end(pid_file, STOP_TIMEOUT_S)
    said = log.read_text(errors="replace").splitlines()[-LAST_LINES:]
    raise MachineError(not_started(what, said, None if in_time else timeout_s))


def not_started(what: str, said: Iterable[str], late_s: float | None) -> str:
    """The sentence about a process that did not start, or not within `late_s`, with the last
    lines that it wrote."""
    late = "" if late_s is None else f" within {late_s:g} s"
    lines = "".join(f"\n  {line}" for line in said)
    return f"{what} did not start{late}; {'it said:' + lines if lines else 'it said nothing'}"


@contextmanager
def serving(pid_file: str, ready_fd: str) -> Iterator[Callable[[], None]]:
    """Continue in a child whose parent exits at once, so that no process has to wait for it, and
    hold the pid file. Yields the function to call when the process is ready.

    Raises BlockingIOError if another process holds the file, FileNotFoundError if it is gone.
    """
    if os.fork():
        os._exit(0)

    def ready() -> None:
        try:
            os.write(int(ready_fd), b"r")
        except BrokenPipeError:
            raise SystemExit("whoever started this has been killed") from None
        os.close(int(ready_fd))

    with pidfile.claim(Path(pid_file)):
        yield ready


def last_line(text: str) -> str:
    """The last line of a process's output, mostly the reason of its end."""
    lines = text.strip().splitlines()
    return lines[-1] if lines else ""
