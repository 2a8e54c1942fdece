"""A command line that is run in this process, and its signals."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from rocelab.base.interruption import WORDS
from rocelab.cli.app import run
from rocelab.cli.main import command_line
from rocelab.linux import rights


class Outcome:
    """What a command line printed, and its exit code."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def hears_signals() -> Iterator[None]:
    """Signals as a program at a terminal has them, however this suite was started."""
    handlers = dict.fromkeys(WORDS, signal.SIG_DFL) | {signal.SIGINT: signal.default_int_handler}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def rights_of_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands in this process find root's rights, whoever runs the tests."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(rights, "missing_capabilities", lambda: ())
    monkeypatch.setattr(rights, "is_writable", lambda path: True)


class CommandLine(Protocol):
    """Calls `rocelab` with these words in this process."""

    def __call__(self, *arguments: str | Path) -> Outcome: ...


@pytest.fixture
def rocelab(capsys: pytest.CaptureFixture[str]) -> CommandLine:
    def call(*arguments: str | Path) -> Outcome:
        with pytest.raises(SystemExit) as ended:
            run(command_line(), [str(argument) for argument in arguments])
        captured = capsys.readouterr()
        code = ended.value.code
        assert isinstance(code, int)
        return Outcome(code, captured.out, captured.err)

    return call
