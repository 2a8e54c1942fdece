"""Labs for the tests: each under a name of its own, taken down whatever happens."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from labs.lab import Lab
from labs.runtime.teardown import take_down

MakeLab = Callable[..., Lab]


@pytest.fixture(scope="session", autouse=True)
def interruptible() -> None:
    """A suite that a shell has started in the background ignores Ctrl-C, and so would every command
    that it starts: here they do not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    """These tests make real labs: without root they fail, they are not skipped."""
    assert os.geteuid() == 0, "integration tests need root: run `make test`"


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[MakeLab]:
    """`make_lab("name", "fabric: {...}")` plans a lab; it is down when the test ends."""
    names: list[str] = []

    def make(name: str, body: str) -> Lab:
        file = tmp_path / f"{name}.yaml"
        file.write_text(f"name: {name}\n{body}\n")
        names.append(name)
        return Lab.planned(file)

    yield make
    for name in names:
        take_down(name)
