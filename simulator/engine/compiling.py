"""numba's compiler with types: a decorator for the compiled functions of this package.

Importing this imports numba. Compiled code is kept in NUMBA_CACHE_DIR, else beside the source, else
in the user's cache folder; where none of them can be written, every process compiles anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
import numpy as np

from simulator.engine.program import Program
from simulator.engine.state import fair_state, run_state
from simulator.fabric.flows import Paths

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _cache_folder() -> Path | None:
    """A folder that can be written, of its own for this state of the sources: numba alone does not
    see that a function which another file's function calls has changed."""
    folder = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(folder.glob("*.py")):
        digest.update(source.read_bytes())
    user = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    given = os.environ.get("NUMBA_CACHE_DIR")
    for parent in [Path(given)] if given else [folder / "__pycache__", user / "rocelab"]:
        made = parent / f"engine-{digest.hexdigest()[:16]}"
        try:
            made.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(made, os.W_OK):
            return made
    return None


def _types() -> dict[str, Any]:
    """numba's type for each annotation. Compiling for these alone, not for each kind of number that
    a call may come with, takes half the time."""
    offsets, ints, floats = np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0)
    program = Program(offsets, ints, floats, floats, offsets, ints, floats)
    whole, real = numba.int64, numba.float64
    return {
        "None": numba.void,
        "bool": numba.boolean,
        "int": whole,
        "float": real,
        "tuple[int, int]": numba.types.UniTuple(whole, 2),
        "tuple[int, float]": numba.types.Tuple((whole, real)),
        "tuple[float, float]": numba.types.UniTuple(real, 2),
        "Ints": numba.int32[::1],
        "Floats": real[::1],
        "Numbers": numba.int32[:, ::1],
        "Table": real[:, ::1],
        "Fair": numba.typeof(fair_state(Paths(offsets, ints), floats)),
        "Run": numba.typeof(run_state(program)),
    }


_FOLDER = _cache_folder()
_TYPES = _types()


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function` as machine code for the types that it is annotated with, made or read from the
    cache at once."""
    *arguments, result = (_TYPES[str(name)] for name in function.__annotations__.values())
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(_FOLDER or "")
    try:
        make = numba.njit(result(*arguments), cache=_FOLDER is not None, error_model="numpy")
        made = make(function)
    finally:
        numba.config.CACHE_DIR = before
    return cast(Callable[Arguments, Result], made)
