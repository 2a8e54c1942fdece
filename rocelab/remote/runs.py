"""Controls runs on another machine: begins, follows and interrupts them, and fetches their output.

A run belongs to its supervisor there (`rocelab.remote.host.supervisor`): losing the connection
loses nothing, and reading of the log resumes where it stopped.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rocelab.base.errors import InputError
from rocelab.base.interruption import WORDS
from rocelab.base.outputs import open_folder
from rocelab.base.progress import Progress, ProgressSink
from rocelab.remote import record
from rocelab.remote.answers import (
    AN_EXIT_CODE,
    COUNT,
    EXIT_CODE,
    RUNS,
    WRITTEN,
    frames,
    marked,
    parsed,
)
from rocelab.remote.connection import Connection
from rocelab.remote.errors import ConnectionLostError, UnfitError
from rocelab.remote.host.frames import Frame, FrameKind, FrameReader
from rocelab.remote.host.runfolder import Request
from rocelab.remote.host.supervisor import BUSY_EXIT, GONE_EXIT
from rocelab.remote.install import InstalledKit, check, send, zipped
from rocelab.remote.upload import RESULTS, Upload, is_within, mirrored

PASSED_ON = ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR")
_CHUNK = 1 << 16
_OVER = b"\0"
_NAME = re.compile(r"\d{8}T\d{6}-[0-9a-f]{4}")
"""A run's name becomes a file name here: names of another form are not accepted from the other
machine."""


@dataclass(frozen=True, slots=True)
class ListedRun:
    """A run as listed by the other machine."""

    run: str
    command: str
    client: str
    started_unix_s: float
    exit_code: int | None
    alive: bool

    @property
    def state(self) -> str:
        if self.exit_code is not None:
            return f"ended, exit code {self.exit_code}"
        return "running" if self.alive else "killed"


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    exit_code: int
    lost_bytes: int
    """Bytes of output lost to a full disk there."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """The properties of this machine's terminal for a run."""

    out: bool
    err: bool
    columns: int
    rows: int

    @classmethod
    def here(cls) -> Terminal:
        size = shutil.get_terminal_size()
        return cls(sys.stdout.isatty(), sys.stderr.isatty(), size.columns, size.lines)


@dataclass(frozen=True, slots=True)
class RemoteRun:
    """A run on the other machine."""

    name: str
    connection: Connection
    installed: InstalledKit

    @property
    def folder(self) -> str:
        return f"{self.installed.runs}/{self.name}"

    def send(self, upload: Upload, terminal: Terminal, progress: ProgressSink) -> None:
        """Send the run's files. Raises DiskFullError."""
        request = Request(
            command=self.installed.rocelab(upload.words),
            words=upload.words,
            folder=upload.folder,
            outputs=upload.outputs,
            environment={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            client=socket.gethostname(),
            out_is_terminal=terminal.out,
            err_is_terminal=terminal.err,
            columns=terminal.columns,
            rows=terminal.rows,
        )
        content = {f"files/{place}": b"" for place in upload.present}
        content |= {f"files/{place}": path.read_bytes() for place, path in upload.sent.items()}
        packed = zipped([("request.json", request.encoded().encode()), *content.items()])
        check(self.connection, self.connection.run(shlex.join(["mkdir", self.folder])), self.folder)
        send(self.connection, packed, f"{self.folder}/request.zip", progress, "files")

    def start(self) -> None:
        """Start it. Raises DiskFullError, UnfitError."""
        self._ask("start")

    def unpack(self) -> None:
        """Only unpack the files. Raises DiskFullError, UnfitError."""
        self._ask("unpack")

    def _ask(self, verb: str, *words: str) -> None:
        output = self.connection.run(self.installed.supervisor(verb, self.folder, *words))
        check(self.connection, output, self.folder)

    def interrupt(self) -> bool:
        """Send Ctrl-C to the command if it runs. Returns whether it runs."""
        output = self.connection.run(self.installed.supervisor("interrupt", self.folder))
        return output.exit_code == 0

    def follow(self, show: Callable[[Frame], None]) -> Ending:
        """Show all output, from the beginning, until the run ends.

        Raises ConnectionLostError if the connection breaks, UnfitError if the run was killed.
        """
        reader = FrameReader()
        lost_bytes = 0
        connection = self.connection
        host = connection.destination
        with connection.watched(), connection.channel() as channel:
            channel.exec_command(self.installed.supervisor("follow", self.folder, "0"))
            channel.shutdown_write()
            while data := channel.recv(_CHUNK):
                for frame in frames(reader, data, host):
                    if frame.kind is FrameKind.EXIT:
                        code = parsed(EXIT_CODE, frame.payload, host, AN_EXIT_CODE)
                        return Ending(code, lost_bytes)
                    if frame.kind is FrameKind.LOST:
                        lost_bytes = parsed(COUNT, frame.payload, host, "the number of lost bytes")
                    else:
                        show(frame)
            code = channel.recv_exit_status()
        if code == GONE_EXIT:
            raise UnfitError(
                f"run {self.name} was killed on {host}, or the machine went down",
                hint=f"its output ends here; `rocelab --host {host} runs --remove {self.name}` "
                "removes it",
            )
        raise connection.lost()

    def fetch(self, outputs: Sequence[str], progress: ProgressSink) -> tuple[list[Path], list[str]]:
        """Fetch the files that it wrote below these places of the mirror.

        Returns the local paths of the fetched files, and the places of files that were not
        requested. Raises InputError if a file cannot be written here, UnfitError if one has
        another size than announced.
        """
        written = self._written()
        wanted = {place: size for place, size in written.items() if is_within(place, outputs)}
        total, done = sum(wanted.values()), 0
        fetched = []
        for place, size in wanted.items():
            target = Path("/", place)
            before = done

            def show(so_far: int, before: int = before) -> None:
                progress(Progress("results", before + so_far, max(total, 1)))

            self._fetch(place, size, target, show)
            done += size
            fetched.append(target)
        return fetched, [place for place in written if place not in wanted]

    def _written(self) -> Mapping[str, int]:
        try:
            written = self.connection.read(f"{self.folder}/written.json")
        except FileNotFoundError:
            return {}
        expected = "the sizes of the written files"
        return parsed(WRITTEN, written, self.connection.destination, expected)

    def _fetch(self, place: str, size: int, target: Path, show: Callable[[int], object]) -> None:
        """Fetch one file atomically. Raises InputError, and UnfitError for another size."""
        try:
            with (
                open_folder(target.parent, make=True) as folder,
                folder.replacing(target.name) as file,
            ):
                for piece in self.connection.pieces(f"{self.folder}/files/{place}", size):
                    file.write(piece)
                    show(file.tell())
        except OSError as error:
            raise InputError(
                f"{target} could not be brought back: {error.strerror or error}",
                hint=f"the run keeps it: `rocelab --host {self.connection.destination} attach "
                f"{self.name}` tries again",
            ) from None

    def discard(self) -> None:
        """Remove the upload of a run that never began."""
        self.connection.run(shlex.join(["rm", "-rf", self.folder]))

    def remove(self) -> None:
        """Remove it there. Raises InputError if it still runs."""
        output = self.connection.run(self.installed.supervisor("remove", self.folder))
        if output.exit_code == BUSY_EXIT:
            raise InputError(f"run {self.name} has not ended", hint="attach to it and press Ctrl-C")
        check(self.connection, output, self.folder)
        record.forget(self.name)


def new_name() -> str:
    """A unique name for a run: its begin and a random part."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


def list_runs(connection: Connection, installed: InstalledKit) -> list[ListedRun]:
    """The runs there that are running, or whose results have not been fetched."""
    output = connection.run(installed.supervisor("list", installed.runs))
    check(connection, output, installed.runs)
    runs = marked(RUNS, output.out, connection.destination, "a list of runs")
    return [
        ListedRun(
            run=run.run,
            command=shlex.join(["rocelab", *run.words]),
            client=run.client,
            started_unix_s=run.started_unix_s,
            exit_code=run.exit_code,
            alive=run.alive,
        )
        for run in runs
        if _NAME.fullmatch(run.run)
    ]


def choose(runs: Sequence[ListedRun], name: str | None, host: str) -> ListedRun:
    """The run of that name, or the only one there is. Raises InputError."""
    if name is None:
        if len(runs) == 1:
            return runs[0]
        if not runs:
            raise InputError(f"there is no run on {host}")
        raise InputError(
            f"there are {len(runs)} runs on {host}: {', '.join(run.run for run in runs)}",
            hint="name one of them",
        )
    for run in runs:
        if run.run == name:
            return run
    raise InputError(f"there is no run {name} on {host}", hint=f"`rocelab --host {host} runs`")


def places_of(run: str, here: Path) -> tuple[str, ...]:
    """The places of a run's results: as recorded when it began; else results/ of `here`."""
    begun = record.remembered(run)
    return begun.outputs if begun is not None else (mirrored(here / RESULTS),)


@contextmanager
def interrupts_passed_on(run: RemoteRun, on_interrupt: Callable[[], None]) -> Iterator[None]:
    """During the block the first terminating signal, such as Ctrl-C, goes to the run as Ctrl-C; the
    second leaves it running.

    Raises ConnectionLostError at the second.
    """
    is_left = threading.Event()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def forward_interrupts() -> None:
        if os.read(reading, 1) == _OVER:
            return
        on_interrupt()
        with suppress(ConnectionLostError):
            run.interrupt()
        if os.read(reading, 1) != _OVER:
            is_left.set()
            run.connection.close()

    # A thread reads the signal's wakeup descriptor: a Python signal handler has to wait until the
    # main thread wakes, and may find it holding a lock.
    worker = threading.Thread(target=forward_interrupts, name="interrupt", daemon=True)
    worker.start()
    before = {
        number: signal.signal(number, lambda *_: None)
        for number in WORDS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    told_before = signal.set_wakeup_fd(writing)
    try:
        yield
    except ConnectionLostError:
        if is_left.is_set():
            raise left_running(run, f"run {run.name} is left") from None
        raise
    finally:
        signal.set_wakeup_fd(told_before)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.write(writing, _OVER)
        worker.join()
        os.close(reading)
        os.close(writing)


def left_running(run: RemoteRun, what: str) -> ConnectionLostError:
    host = run.connection.destination
    error = ConnectionLostError(
        f"{what}; it goes on there", hint=f"rocelab --host {host} attach {run.name}"
    )
    error.__suppress_context__ = True
    return error
