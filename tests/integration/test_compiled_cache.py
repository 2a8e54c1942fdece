"""Compiled functions are kept for the user who compiled them, and no other user loads them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import traceback
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numba
import pytest

from rocelab.base import compiling
from rocelab.base.compiling import LOCK, cache_folder, compile_first, compiled_in
from tests.helpers.waiting import wait_until

pytestmark = pytest.mark.side_by_side

NOBODY = 65534
HITS, COMPILED, NOT_KEPT, FAILED = 0, 1, 2, 3


SOURCE = "def add(left, right):\n    return left + right\n"
ADDED = numba.int64(numba.int64, numba.int64)


def as_nobody(work: Callable[[], int]) -> int:
    """The result of `work`, a small number, in a process of that user."""
    child = os.fork()
    if child == 0:
        code = FAILED
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            code = work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def compiled_from(sources: list[Path], signature: object = ADDED) -> int:
    """Compiles, and says whether it was there already. Without a signature it is left to a call."""
    folder = cache_folder(sources[0].parent)
    if folder is None:
        return NOT_KEPT
    # From a file that the other user can read, as this one may not be: numba looks at it.
    spec = spec_from_file_location("rocelab_tests_source", sources[0])
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    made = compiled_in(folder, module.add, signature)
    if signature is None:
        compile_first(sources[0].parent, (), made, 0, 0)
    assert made(1, 2) == 3
    return HITS if sum(made.stats.cache_hits.values()) else COMPILED  # type: ignore[attr-defined]


@pytest.fixture
def sources(common_folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Sources in root's own folder, and a home of the other user."""
    # What numba loads when it first compiles, keeps and reads: the other user may not be able to
    # read this Python.
    tried = common_folder / "tried" / "source.py"
    tried.parent.mkdir()
    tried.write_text(SOURCE)
    assert [compiled_from([tried]), compiled_from([tried])] == [COMPILED, HITS]
    # Nor this checkout.
    copies = [
        Path(shutil.copy(Path(compiling.__file__).with_name(name), common_folder))
        for name in compiling.HOW
    ]
    monkeypatch.setattr(compiling, "__file__", str(common_folder / Path(compiling.__file__).name))
    source = common_folder / "checkout" / "source.py"
    source.parent.mkdir()
    source.write_text(SOURCE)
    # Whatever the umask here, and where this was cloned.
    for path in (*copies, source):
        path.chmod(0o644)
    source.parent.chmod(0o755)
    home = common_folder / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    return [source]


def test_another_user_compiles_once_in_a_folder_of_their_own(sources: list[Path]) -> None:
    folder = cache_folder(sources[0].parent)
    assert folder is not None
    assert folder.parent == sources[0].parent / "__pycache__"
    assert as_nobody(lambda: compiled_from(sources)) == COMPILED
    assert as_nobody(lambda: compiled_from(sources)) == HITS
    (kept,) = Path(os.environ["HOME"], ".cache/rocelab").iterdir()
    assert kept.stat().st_uid == NOBODY


@pytest.mark.parametrize("signature", [ADDED, None])
def test_who_wants_the_same_at_once_waits_for_who_makes_it(
    sources: list[Path], signature: object
) -> None:
    folder = cache_folder(sources[0].parent)
    assert folder is not None
    maker = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(maker, fcntl.LOCK_EX)
    child = os.fork()
    if child == 0:
        os.close(maker)
        os._exit(compiled_from(sources, signature))
    # `->` marks a lock that is waited for (proc_locks(5)).
    wait_until(lambda: re.search(rf"-> FLOCK .* {child} ", Path("/proc/locks").read_text()))
    os.close(maker)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == COMPILED


@pytest.mark.parametrize("variable", ["HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME"])
def test_root_loads_nothing_that_another_user_may_have_written(
    sources: list[Path], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    os.chown(sources[0].parent, NOBODY, NOBODY)
    monkeypatch.setenv(variable, os.environ["HOME"])
    assert as_nobody(lambda: compiled_from(sources)) == COMPILED
    before = sorted(sources[0].parents[1].rglob("*"))
    assert compiled_from(sources) != HITS
    cache = cache_folder(sources[0].parent)
    assert cache is None or cache.stat().st_uid == os.geteuid()
    made = [path for path in sorted(sources[0].parents[1].rglob("*")) if path not in before]
    assert all(path.stat().st_uid == os.geteuid() for path in made)
