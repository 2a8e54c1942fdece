"""A hostile machine's answers end in one error, not in a crash, a hang or a full disk."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import paramiko
import pytest

from rocelab.base.errors import InputError
from rocelab.cli import host as command
from rocelab.remote.address import Destination, HostAddress
from rocelab.remote.connection import Connection
from rocelab.remote.errors import ConnectionLostError, UnfitError
from rocelab.remote.host.bootstrap import MARK
from rocelab.remote.host.frames import HEADER, Frame, FrameKind
from rocelab.remote.install import InstalledKit, Kit, ensure_installed, send
from rocelab.remote.runs import Ending, RemoteRun, list_runs
from rocelab.remote.upload import mirrored
from tests.helpers.limits import LIMIT_S

VM = Destination(HostAddress("vm"), "vm", 22, "me", (), ())
INSTALLED = InstalledKit(
    "/home", "/home/kits/k", "python", as_root=True, by_sudo=False, is_new=False
)
NAME = "20300101T000000-abcd"
MACHINE = {
    "system": "Linux",
    "home": "/home/me/.local/share/rocelab",
    "kit": True,
    "venv": "/home/me/.local/share/rocelab/venvs/v",
    "has_venv": True,
    "uid": 0,
    "sudo": False,
    "kernel": "6.1",
}
STATE = {
    "run": NAME,
    "words": ["up", "tiny"],
    "client": "laptop",
    "started_unix_s": 1.0,
    "ended_unix_s": None,
    "exit_code": None,
    "alive": True,
}


@dataclass
class FakeChannel:
    """A channel that gives these outputs of a command and its exit code."""

    out: bytes = b""
    err: bytes = b""
    code: int = 0
    is_endless: bool = False
    is_closed: bool = False
    end: threading.Event | None = None
    """When the output ends: without it, at once."""

    def __enter__(self) -> FakeChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def exec_command(self, _: str) -> None:
        pass

    def sendall(self, _: bytes) -> None:
        if self.is_closed:
            # As paramiko says it: without an errno.
            raise OSError("Socket is closed")

    def shutdown_write(self) -> None:
        self.sendall(b"")

    def recv(self, size: int) -> bytes:
        if self.is_endless:
            return bytes(size)
        assert self.end is None or self.end.wait(LIMIT_S)
        data, self.out = self.out[:size], self.out[size:]
        return data

    def recv_stderr(self, size: int) -> bytes:
        data, self.err = self.err[:size], self.err[size:]
        return data

    def recv_exit_status(self) -> int:
        return self.code

    @property
    def status_event(self) -> threading.Event:
        ended = threading.Event()
        if not self.is_endless and self.end is None:
            ended.set()
        return self.end or ended

    @property
    def eof_received(self) -> bool:
        return not self.is_endless

    def recv_ready(self) -> bool:
        return self.is_endless or (self.status_event.is_set() and bool(self.out))

    def recv_stderr_ready(self) -> bool:
        return bool(self.err)


@dataclass
class FakeClient:
    """An SSH client, and its transport, whose every command gets this channel."""

    answer: FakeChannel
    files: Any = None
    on_close: Callable[[], object] = field(default=lambda: None)

    def get_transport(self) -> FakeClient:
        return self

    def is_active(self) -> bool:
        return True

    def open_session(self, timeout: float) -> FakeChannel:
        assert timeout > 0
        return self.answer

    def open_sftp(self) -> Any:
        return self.files

    def close(self) -> None:
        self.on_close()


def connection_to(answer: FakeChannel, files: Any = None) -> Connection:
    return Connection(VM, cast(Any, FakeClient(answer, files)))


def says(value: object) -> bytes:
    return f"{MARK}{json.dumps(value)}\n".encode()


def look(out: bytes) -> InstalledKit:
    kit = Kit({}, ())
    return ensure_installed(connection_to(FakeChannel(out)), kit, lambda _: None)


def follow(log: bytes) -> Ending:
    return RemoteRun(NAME, connection_to(FakeChannel(log)), INSTALLED).follow(lambda _: None)


def refused(ask: Callable[[], object], expected: str) -> None:
    with pytest.raises(UnfitError, match=f"vm cannot be understood: expected {expected}") as caught:
        ask()
    assert caught.value.exit_code == 3
    assert "rocelab --host vm doctor" in str(caught.value.hint)


def test_what_look_answers_is_understood_among_the_words_of_a_login_shell() -> None:
    states = look(b"Welcome!\xff\n" + says(MACHINE))
    assert states.home == MACHINE["home"]
    assert (states.as_root, states.is_new) == (True, False)


@pytest.mark.parametrize(
    "out",
    [
        b"",
        says({}),
        says([]),
        MARK.encode() + b"{{{",
        MARK.encode() + b"[" * 200_000,
        says({**MACHINE, "home": 1}),
        says({**MACHINE, "uid": "0"}),
    ],
)
def test_another_answer_to_look_is_refused(out: bytes) -> None:
    refused(lambda: look(out), "a description of the machine")


@pytest.mark.parametrize(
    "log",
    [
        HEADER.pack(FrameKind.OUT, 1 << 31),
        HEADER.pack(9, 0),
        *(Frame(FrameKind.EXIT, code).encoded() for code in (b"abc", b"-5", b"256", b"9" * 5000)),
        *(Frame(FrameKind.LOST, count).encoded() for count in (b"xxx", b"-1", b"9" * 5000)),
    ],
)
def test_a_log_with_anything_but_frames_and_their_numbers_is_refused(log: bytes) -> None:
    whole = Frame(FrameKind.OUT, b"text").encoded() + log
    refused(lambda: follow(whole), "(the log of a run|an exit code|the number of lost bytes)")


def test_a_log_gives_the_exit_code_and_the_lost_bytes() -> None:
    log = Frame(FrameKind.LOST, b"12").encoded() + Frame(FrameKind.EXIT, b"255").encoded()
    assert follow(log) == Ending(255, 12)


@pytest.mark.parametrize(
    "answer",
    [
        "abc",
        {},
        [{**STATE, "started_unix_s": 1e300}],
        [{**STATE, "started_unix_s": float("nan")}],
        [{**STATE, "words": 5}],
        [{**STATE, "exit_code": 999}],
        [{}],
    ],
)
def test_another_answer_than_a_list_of_runs_is_refused(answer: object) -> None:
    connection = connection_to(FakeChannel(says(answer)))
    refused(lambda: list_runs(connection, INSTALLED), "a list of runs")


def test_runs_of_other_names_are_left_out() -> None:
    answer = says([STATE, {**STATE, "run": "../../etc"}])
    (run,) = list_runs(connection_to(FakeChannel(answer)), INSTALLED)
    assert (run.run, run.command) == (NAME, "rocelab up tiny")


@pytest.mark.parametrize("out", [b'{"checks":[1]}', b"[]", b"", b"[" * 200_000])
def test_another_answer_of_doctor_is_a_note(out: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    command._show_missing(connection_to(FakeChannel(out)), INSTALLED)
    assert "doctor did not run on vm: the answer of vm" in capsys.readouterr().err


class FakeFiles:
    """The files of the other machine by their names."""

    def __init__(self, **files: io.RawIOBase | io.BytesIO) -> None:
        self.files = files

    def open(self, path: str) -> FakeFile:
        return FakeFile(self.files[Path(path).name.removesuffix(".json")])


@dataclass
class FakeFile:
    """A file that is open there. Closing one with a hostile `content` waits for ever."""

    content: Any

    def prefetch(self, size: int) -> None:
        assert size < 1 << 30

    def read(self, size: int) -> bytes:
        return bytes(self.content.read(size))

    def close(self) -> None:
        assert not isinstance(self.content, Endless)


class Endless(io.RawIOBase):
    """Content without an end."""

    def read(self, size: int = -1) -> bytes:
        return bytes(size)


class Interrupting(io.RawIOBase):
    """Content during which Ctrl-C comes."""

    def read(self, _: int = -1) -> bytes:
        raise KeyboardInterrupt


def run_with(**files: Any) -> RemoteRun:
    return RemoteRun(NAME, connection_to(FakeChannel(), FakeFiles(**files)), INSTALLED)


def fetch(folder: Path, sizes: dict[str, int], **files: Any) -> list[Path]:
    """Fetch files of these announced sizes into a folder."""
    place = mirrored(folder)
    written = json.dumps({f"{place}/{name}": size for name, size in sizes.items()})
    run = run_with(written=io.BytesIO(written.encode()), **files)
    return run.fetch([place], lambda _: None)[0]


@pytest.mark.parametrize(
    "written",
    [b"[]", b"{{", b'{"x": "abc"}', b'{"x": -1}', b"[" * 200_000, b'{"x": ' + b"9" * 5000 + b"}"],
)
def test_another_list_of_written_files_is_refused(written: bytes) -> None:
    run = run_with(written=io.BytesIO(written))
    refused(lambda: run.fetch([], lambda _: None), "the sizes of the written files")


def test_a_list_of_written_files_without_end_is_refused() -> None:
    run = run_with(written=Endless())
    refused(lambda: run.fetch([], lambda _: None), "at most 16,777,216 bytes")


def test_files_of_the_announced_sizes_are_fetched(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    sizes = {"big": len(content), "empty": 0}
    fetched = fetch(tmp_path, sizes, big=io.BytesIO(content), empty=io.BytesIO())
    assert fetched == [tmp_path / "big", tmp_path / "empty"]
    assert [path.read_bytes() for path in fetched] == [content, b""]
    assert set(tmp_path.iterdir()) == set(fetched)


@pytest.mark.parametrize(
    ("size", "content", "expected"),
    [
        (5, Endless(), "no more than 5 bytes"),
        (5, io.BytesIO(b"abc"), "5 bytes"),
        (1 << 60, io.BytesIO(b"abc"), "1,152,921,504,606,846,976 bytes"),
    ],
)
def test_a_file_of_another_size_than_announced_leaves_nothing(
    size: int, content: Any, expected: str, tmp_path: Path
) -> None:
    refused(lambda: fetch(tmp_path, {"big": size}, big=content), expected)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_fetch_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fetch(tmp_path, {"big": 5}, big=Interrupting())
    assert list(tmp_path.iterdir()) == []


def test_an_output_without_end_is_refused() -> None:
    endless = FakeChannel(is_endless=True)
    refused(lambda: connection_to(endless).run("look"), "at most 16,777,216 bytes")
    assert endless.is_closed
    endless_errors = FakeChannel(err=bytes((1 << 24) + 1))
    refused(lambda: connection_to(endless_errors).run("look"), "at most 16,777,216 bytes")


def test_an_exit_code_above_255_is_refused() -> None:
    refused(lambda: connection_to(FakeChannel(code=999)).run("true"), "an exit code of 0 to 255")


@pytest.mark.parametrize("stdin", [b"", b"script"])
def test_a_channel_closed_before_our_stdin_is_a_lost_connection(stdin: bytes) -> None:
    connection = connection_to(FakeChannel(is_closed=True))
    with pytest.raises(ConnectionLostError):
        connection.run("true", stdin=stdin)


def test_a_failure_of_sftp_is_no_lost_connection() -> None:
    connection = connection_to(FakeChannel())
    with pytest.raises(OSError, match="Failure"), connection.watched():
        raise OSError("Failure")


def test_a_size_of_thousands_of_digits_is_no_crash() -> None:
    class NoFiles:
        def putfo(self, *_: object) -> None:
            raise OSError("Failure")

    answer = FakeChannel(b"/dev/vda 1 1 " + b"9" * 5000 + b" 1% /\n")
    connection = connection_to(answer, NoFiles())
    with pytest.raises(InputError, match="vm takes no file at /x: Failure"):
        send(connection, b"data", "/x", lambda _: None, "files")


def test_another_protocol_than_sftp_is_refused() -> None:
    def ask() -> None:
        with connection_to(FakeChannel()).watched():
            raise paramiko.SFTPError("Garbage packet received")

    refused(ask, "SFTP version 3")


def test_a_look_without_an_answer_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocelab.remote.install.LOOK_LIMIT_S", 0.01)
    is_closed = threading.Event()
    silent = FakeChannel(code=-1, end=is_closed)
    connection = Connection(VM, cast(Any, FakeClient(silent, on_close=is_closed.set)))
    refused(
        lambda: ensure_installed(connection, Kit({}, ()), lambda _: None), "an answer within 0.01 s"
    )
