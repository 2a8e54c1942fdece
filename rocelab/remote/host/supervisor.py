"""The other machine's side of a run: starts a command, outlives the connection, keeps its log.

`python -m rocelab.remote.host.supervisor VERB ...` with the kit on the path. `start` returns when
the command runs; from then on only the supervisor is its parent, and any client can follow the log,
now or later. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import select
import selectors
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

from rocelab.base.trust import sudo_user
from rocelab.linux import inotify
from rocelab.remote.host.bootstrap import MARK, NO_SPACE_EXIT
from rocelab.remote.host.frames import MAX_PAYLOAD, Frame, FrameKind, FrameReader
from rocelab.remote.host.runfolder import INTERRUPT, Request, RunFolder, RunState

GONE_EXIT = 4
"""The run has no supervisor and its log no end: it was killed, or the machine crashed."""
BUSY_EXIT = 5
RESERVE_BYTES = 2 * MAX_PAYLOAD
"""Reserved for the end of a log on a full disk: the rest of a frame, and the last frames."""
LIVENESS_MS = 1000
_CHUNK = 1 << 20
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Log:
    """Appends whole frames. The frame that fills the disk is completed once there is space again,
    since readers have its beginning; later output is counted, not written."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC)
        self._is_full = False
        self._rest = b""
        self.lost_bytes = 0

    def write(self, kind: FrameKind, payload: bytes) -> None:
        if self._is_full:
            self.lost_bytes += len(payload)
            return
        try:
            self._append(Frame(kind, payload).encoded())
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._is_full = True

    def complete(self) -> None:
        """Write the rest of the frame that filled the disk. Raises OSError without space."""
        self._append(b"")

    def end(self, exit_code: int) -> None:
        """Write the last frames. Raises OSError if not even they fit."""
        if self.lost_bytes:
            self._append(Frame(FrameKind.LOST, str(self.lost_bytes).encode()).encoded())
        self._append(Frame(FrameKind.EXIT, str(exit_code).encode()).encoded())

    def _append(self, data: bytes) -> None:
        self._rest += data
        while self._rest:
            self._rest = self._rest[os.write(self._descriptor, self._rest) :]


def start(folder: RunFolder) -> None:
    """Start the request and return when it runs. Raises OSError, with the log's end unwritten."""
    request = folder.unpack()
    (folder.files / request.folder).mkdir(parents=True, exist_ok=True)
    folder.reserve.write_bytes(os.urandom(RESERVE_BYTES))
    os.mkfifo(folder.control, 0o600)
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        _detach(folder, request, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        failure = answer.read()
    os.wait()
    if failure:
        number, _, reason = failure.decode().partition(" ")
        raise OSError(int(number), reason)


def _detach(folder: RunFolder, request: Request, answer: int) -> NoReturn:
    """Continue as a process without a connection or terminal."""
    os.setsid()
    if os.fork():
        os._exit(0)
    code = 1
    answered = os.fdopen(answer, "wb", buffering=0)
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        supervise(folder, request, answered.close)
        code = 0
    except OSError as error:
        # Once the command runs no caller waits for an answer, and the file is closed.
        with suppress(OSError, ValueError):
            answered.write(f"{error.errno or 0} {error.strerror or error}".encode())
    finally:
        os._exit(code)


def supervise(folder: RunFolder, request: Request, on_start: Callable[[], None]) -> None:
    """Run the command to its end. `on_start` is called when it runs. Raises OSError before that."""
    before = folder.snapshot()
    state = RunState(folder.root.name, request.words, request.client, time.time())
    folder.write_state(state)
    log = Log(folder.log)
    control = os.open(folder.control, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    process, streams = _spawn(folder, request)
    on_start()
    code = _log_output(process, streams, control, log)
    folder.reserve.unlink()
    with suppress(OSError):
        log.complete()
    # Without space even for these the exit code is still reported.
    with suppress(OSError):
        folder.write_written(before)
        folder.write_state(replace(state, ended_unix_s=time.time(), exit_code=code))
    if owner := sudo_user():
        folder.hand_over(*owner)
    log.end(code)


def _spawn(
    folder: RunFolder, request: Request
) -> tuple[subprocess.Popen[bytes], dict[int, FrameKind]]:
    """Start the command in a process group of its own. Returns it with the descriptors of its
    output."""
    streams: dict[int, FrameKind] = {}
    ends: dict[FrameKind, int] = {}
    if request.out_is_terminal or request.err_is_terminal:
        terminal, end = _terminal(request)
        kinds = (
            *((FrameKind.OUT,) if request.out_is_terminal else ()),
            *((FrameKind.ERR,) if request.err_is_terminal else ()),
        )
        streams[terminal] = kinds[0]
        ends |= dict.fromkeys(kinds, end)
    for kind in (FrameKind.OUT, FrameKind.ERR):
        if kind not in ends:
            reading, ends[kind] = os.pipe()
            streams[reading] = kind
    # Otherwise the command would ignore a forwarded Ctrl-C if the login shell ignores it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen(
        request.command,
        stdin=subprocess.DEVNULL,
        stdout=ends[FrameKind.OUT],
        stderr=ends[FrameKind.ERR],
        cwd=folder.files / request.folder,
        env={**os.environ, **request.environment},
        process_group=0,
    )
    for descriptor in set(ends.values()):
        os.close(descriptor)
    return process, streams


def _terminal(request: Request) -> tuple[int, int]:
    """A pseudo-terminal of the sender's size that passes output through unchanged."""
    terminal, end = pty.openpty()
    attributes = termios.tcgetattr(end)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(end, termios.TCSANOW, attributes)
    size = struct.pack("HHHH", request.rows, request.columns, 0, 0)
    fcntl.ioctl(end, termios.TIOCSWINSZ, size)
    return terminal, end


def _log_output(
    process: subprocess.Popen[bytes], streams: dict[int, FrameKind], control: int, log: Log
) -> int:
    """Log the command's output and forward interrupts until it ends. Returns its exit code."""
    ended = os.pidfd_open(process.pid)
    with selectors.DefaultSelector() as selector:
        for descriptor in (*streams, control, ended):
            os.set_blocking(descriptor, False)
            selector.register(descriptor, selectors.EVENT_READ)
        while process.returncode is None:
            for key, _ in selector.select():
                if key.fd in streams:
                    if not _copy(key.fd, streams[key.fd], log):
                        selector.unregister(key.fd)
                elif key.fd == control:
                    if INTERRUPT in os.read(control, 1 << 12):
                        os.killpg(process.pid, signal.SIGINT)
                else:
                    process.wait()
    for descriptor, kind in streams.items():
        while _copy(descriptor, kind, log):
            pass
    # Killed by a signal: as in a shell.
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def _copy(descriptor: int, kind: FrameKind, log: Log) -> bool:
    """Log available output; False if there is none, now or for good."""
    try:
        data = os.read(descriptor, MAX_PAYLOAD)
    except OSError:
        # EAGAIN: nothing now; EIO: the last writer to a pseudo-terminal is gone.
        return False
    if data:
        log.write(kind, data)
    return bool(data)


def follow(folder: RunFolder, offset: int) -> None:
    """Write the log's frames from `offset` on to stdout as they come, up to its last one.

    Exits GONE_EXIT if the log will never have a last one.
    """
    reader = FrameReader(offset)
    with folder.log.open("rb") as log:
        log.seek(offset)
        watch = inotify.watch(folder.log)
        poll = select.poll()
        poll.register(watch, select.POLLIN)
        # Without events: poll reports only that the reader is gone.
        poll.register(sys.stdout.fileno(), 0)
        has_supervisor = True
        while True:
            data = log.read(_CHUNK)
            for frame in reader.feed(data):
                _write_all(frame.encoded())
                if frame.kind is FrameKind.EXIT:
                    return
            if data:
                continue
            if not has_supervisor:
                sys.exit(GONE_EXIT)
            ready = dict(poll.poll(LIVENESS_MS))
            if sys.stdout.fileno() in ready:
                return
            if watch in ready:
                os.read(watch, 1 << 12)
            else:
                # Its last output is read once more before it counts as dead.
                has_supervisor = folder.has_supervisor()


def _write_all(data: bytes) -> None:
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def interrupt(folder: RunFolder) -> None:
    """Forward Ctrl-C to the command. Exits GONE_EXIT without a supervisor."""
    try:
        control = os.open(folder.control, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        sys.exit(GONE_EXIT)
    os.write(control, INTERRUPT)


def list_runs(runs: Path) -> None:
    """Print all runs in the order of their beginning, as JSON."""
    states = []
    for root in sorted(runs.iterdir()):
        folder = RunFolder(root)
        state = folder.read_state()
        if state is not None:
            states.append({**asdict(state), "alive": folder.has_supervisor()})
    sys.stdout.write(f"{MARK}{json.dumps(states)}\n")


def remove(folder: RunFolder) -> None:
    """Remove a run that has ended. Exits BUSY_EXIT for one that has not."""
    if folder.has_supervisor():
        state = folder.read_state()
        if state is None or state.exit_code is None:
            sys.exit(BUSY_EXIT)
    folder.remove()


def main(words: list[str]) -> None:
    """Run a verb. Exits NO_SPACE_EXIT if the disk is full."""
    verb, path, *rest = words
    folder = RunFolder(Path(path))
    verbs: dict[str, Callable[[], object]] = {
        "start": lambda: start(folder),
        "unpack": folder.unpack,
        "follow": lambda: follow(folder, int(rest[0])),
        "interrupt": lambda: interrupt(folder),
        "list": lambda: list_runs(Path(path)),
        "remove": lambda: remove(folder),
    }
    try:
        verbs[verb]()
    except BrokenPipeError:
        os._exit(1)
    except OSError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(NO_SPACE_EXIT if error.errno in NO_ROOM else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
