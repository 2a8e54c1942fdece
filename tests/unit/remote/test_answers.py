"""A hostile machine's answers end in one error, not in a crash, a hang or a full disk."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from rocelab.cli import host as command
from rocelab.remote.address import Address, Destination
from rocelab.remote.connection import Connection
from rocelab.remote.errors import UnfitError
from rocelab.remote.host.bootstrap import MARK
from rocelab.remote.host.frames import HEADER, Frame, Kind
from rocelab.remote.install import Installed, Kit, ensure_installed
from rocelab.remote.runs import Ending, Run, list_runs

VM = Destination(Address("vm"), "vm", 22, "me", (), ())
INSTALLED = Installed("/home", "/home/kits/k", "python", as_root=True, by_sudo=False, is_new=False)
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
        data, self.out = self.out[:size], self.out[size:]
        return data

    def recv_stderr(self, size: int) -> bytes:
        data, self.err = self.err[:size], self.err[size:]
        return data

    def makefile_stderr(self, _: str) -> io.BytesIO:
        return io.BytesIO(self.err)

    def recv_exit_status(self) -> int:
        return self.code


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


def look(out: bytes) -> Installed:
    kit = Kit({}, ())
    return ensure_installed(connection_to(FakeChannel(out)), kit, lambda _: None)


def follow(log: bytes) -> Ending:
    return Run(NAME, connection_to(FakeChannel(log)), INSTALLED).follow(lambda _: None)


def refused(ask: Callable[[], object], expected: str) -> None:
    with pytest.raises(UnfitError, match=f"vm cannot be understood: expected {expected}") as found:
        ask()
    assert found.value.exit_code == 3
    assert "rocelab --host vm doctor" in str(found.value.hint)


def test_what_look_answers_is_understood_among_the_words_of_a_login_shell() -> None:
    found = look(b"Welcome!\xff\n" + says(MACHINE))
    assert found.home == MACHINE["home"]
    assert (found.as_root, found.is_new) == (True, False)


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
        HEADER.pack(Kind.OUT, 1 << 31),
        HEADER.pack(9, 0),
        *(Frame(Kind.EXIT, code).encoded() for code in (b"abc", b"-5", b"256", b"9" * 5000)),
        *(Frame(Kind.LOST, count).encoded() for count in (b"xxx", b"-1", b"9" * 5000)),
    ],
)
def test_a_log_with_anything_but_frames_and_their_numbers_is_refused(log: bytes) -> None:
    whole = Frame(Kind.OUT, b"text").encoded() + log
    refused(lambda: follow(whole), "(the log of a run|an exit code|the number of lost bytes)")


def test_a_log_gives_the_exit_code_and_the_lost_bytes() -> None:
    log = Frame(Kind.LOST, b"12").encoded() + Frame(Kind.EXIT, b"255").encoded()
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
    (found,) = list_runs(connection_to(FakeChannel(answer)), INSTALLED)
    assert (found.run, found.command) == (NAME, "rocelab up tiny")


@pytest.mark.parametrize("out", [b'{"checks":[1]}', b"[]", b"", b"[" * 200_000])
def test_another_answer_of_doctor_is_a_note(out: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    command._tell_what_is_missing(connection_to(FakeChannel(out)), INSTALLED)
    assert "doctor did not run on vm: the answer of vm" in capsys.readouterr().err


class FakeFiles:
    """Files of the other machine by their path; those of `endless` have no end."""

    def __init__(self, files: dict[str, bytes], endless: bytes = b"") -> None:
        self.files = files
        self.endless = endless

    def open(self, path: str, mode: str = "r") -> io.BytesIO:
        assert mode.startswith("r")
        return io.BytesIO(self.files[Path(path).name])


@pytest.mark.parametrize(
    "written",
    [b"[]", b"{{", b'{"x": "abc"}', b'{"x": -1}', b"[" * 200_000, b'{"x": ' + b"9" * 5000 + b"}"],
)
def test_another_list_of_written_files_is_refused(written: bytes) -> None:
    connection = connection_to(FakeChannel(), FakeFiles({"written.json": written}))
    run = Run(NAME, connection, INSTALLED)
    refused(lambda: run.fetch([], lambda _: None), "the sizes of the written files")
