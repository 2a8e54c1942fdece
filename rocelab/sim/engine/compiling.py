"""A decorator that compiles the functions of this package with numba, for their annotated types.

Importing this module imports numba. Compiled code is cached (`rocelab.base.compiling`).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from rocelab.base import compiling
from rocelab.base.compiling import cache_folder, compiled_in
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Program
from rocelab.sim.engine.state import fair_state, run_state

numba = compiling.numba()

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _types() -> dict[str, Any]:
    """numba's type for each annotation. Compiling for these types alone, not for the types of each
    call, takes half the time."""
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
        "FairState": numba.typeof(fair_state(Paths(offsets, ints), floats)),
        "Run": numba.typeof(run_state(program)),
    }


_FOLDER = cache_folder(Path(__file__).parent)
_TYPES = _types()


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """`function` as machine code for its annotated types, compiled or loaded from the cache at
    once."""
    *arguments, result = (_TYPES[str(name)] for name in function.__annotations__.values())
    return compiled_in(_FOLDER, function, result(*arguments))
