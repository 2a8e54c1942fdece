"""The line that says that the simulator is compiled first."""

from __future__ import annotations

import io
import resource
from pathlib import Path

import pytest
from rich.console import Console

from rocelab.base import compiling
from rocelab.base.errors import MachineError
from rocelab.cli import simulate

ENGINE = Path(simulate.__file__).parents[1] / "sim/engine"


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The empty cache of a user's first simulation."""
    monkeypatch.delenv(compiling.OFF, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    folder = compiling.cache_folder(ENGINE)
    assert folder is not None
    return folder


def noted(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = True) -> str:
    console = Console(file=io.StringIO(), force_terminal=terminal)
    monkeypatch.setattr(simulate, "err", lambda: console)
    simulate.note_compiling()
    written = console.file
    assert isinstance(written, io.StringIO)
    return written.getvalue()


def test_a_first_simulation_says_on_a_terminal_that_it_compiles(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "First use: compiling the simulator, about half a minute, then cached" in noted(
        monkeypatch
    )
    assert noted(monkeypatch, terminal=False) == ""


def test_nothing_is_said_of_what_is_compiled_already_or_not_at_all(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / "engine").mkdir()
    (cache / "engine" / "heap.nbi").touch()
    assert noted(monkeypatch) == ""
    (cache / "engine" / "heap.nbi").unlink()
    monkeypatch.setenv(compiling.OFF, "1")
    assert noted(monkeypatch) == ""


def test_nothing_is_compiled_where_a_process_may_not_have_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in (resource.RLIM_INFINITY, compiling.LEAST_BYTES):
        monkeypatch.setattr(resource, "getrlimit", lambda _, limit=limit: (limit, limit))
        compiling.numba()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (compiling.LEAST_BYTES - 1,) * 2)
    with pytest.raises(MachineError, match="compiling a simulation needs 700 MB"):
        compiling.numba()
