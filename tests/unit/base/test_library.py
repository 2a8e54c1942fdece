"""Libraries of compiled functions."""

from __future__ import annotations

import itertools
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from rocelab.base import compiling

SOURCE = """
from __future__ import annotations
from pathlib import Path
from typing import Any, NamedTuple
import numpy as np
from rocelab.base.byreference import by_reference, numba
from rocelab.base.library import FunctionLibrary

class Tables(NamedTuple):
    small: Any
    table: Any

by_reference(Tables)

def types():
    tables = Tables(np.zeros(1, np.int32), np.zeros((1, 1)))
    return {"int": numba.int64, "float": numba.float64, "Tables": numba.typeof(tables)}

LIBRARY = FunctionLibrary(Path(__file__).parent, types=types)

@LIBRARY.part
def doubled(number: int) -> int:
    return 2 * number

@LIBRARY.entry
def total(tables: Tables, count: int) -> float:
    found = 0.0
    for number in range(count):
        found += doubled(tables.small[number]) + doubled(count)
    drawn = np.empty(len(tables.table))
    drawn[:] = tables.table[:, 1]
    tables.table[0, 0] = found
    return found + drawn.sum()

@LIBRARY.entry
def more(tables: Tables) -> float:
    return total(tables, 1)
"""
NUMBER = itertools.count()


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(compiling.OFF, raising=False)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    file = tmp_path / "source.py"
    file.write_text(SOURCE)
    return file


def loaded(source: Path) -> ModuleType:
    """The module as another process has it."""
    spec = spec_from_file_location(f"rocelab_tests_library_{next(NUMBER)}", source)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def summed(module: ModuleType) -> tuple[float, float]:
    """What an entry returns, and what it wrote."""
    tables = module.Tables(np.arange(3, dtype=np.int32), np.arange(6.0).reshape(3, 2))
    return module.total(tables, 3), tables.table[0, 0]


def test_each_function_is_compiled_once_for_its_annotated_types(source: Path) -> None:
    module, steps = loaded(source), []
    module.LIBRARY.compile(lambda done, total: steps.append((done, total)))
    assert steps == [(number, 3) for number in range(4)]
    functions = (module.doubled, module.total, module.more)
    assert [len(function.dispatcher.overloads) for function in functions] == [1, 1, 1]
    assert summed(module) == (24.0 + 9.0, 24.0)
    with pytest.raises(TypeError):
        module.total(module.Tables(np.zeros(1), np.zeros((1, 1))), 1)


def test_another_process_loads_entries_from_the_cache_and_compiles_no_part(source: Path) -> None:
    before = summed(loaded(source))
    module = loaded(source)
    assert module.LIBRARY.is_complete()
    assert summed(module) == before
    assert sum(module.total.dispatcher.stats.cache_hits.values()) == 1
    assert not module.doubled.dispatcher.overloads


def test_what_was_interrupted_is_not_complete(source: Path) -> None:
    module = loaded(source)

    def interrupt(done: int, total: int) -> None:
        if done == total - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        module.LIBRARY.compile(interrupt)
    assert list((source.parent / "cache").rglob("*.nbi")), "an entry was kept"
    assert not loaded(source).LIBRARY.is_complete()
    assert summed(loaded(source)) == (33.0, 24.0)
    assert loaded(source).LIBRARY.is_complete()


def test_functions_of_no_library_may_share_what_one_has_compiled(source: Path) -> None:
    summed(loaded(source))

    def made(count: int) -> float:
        return float(np.zeros(count).sum())

    assert compiling.compiled_in(None, made)(4) == 0.0


def test_without_a_compiler_functions_run_as_they_stand(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(compiling.OFF, "1")
    module = loaded(source)
    assert module.LIBRARY.is_complete()
    assert summed(module) == (33.0, 24.0)


def test_python_runs_a_part_as_it_stands(source: Path) -> None:
    module = loaded(source)
    assert module.doubled(4) == 8
    assert not module.doubled.dispatcher.overloads
