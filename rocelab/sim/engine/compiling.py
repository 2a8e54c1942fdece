"""The library of the functions of this package, compiled for their annotated types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rocelab.base import compiling
from rocelab.base.library import FunctionLibrary
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Program
from rocelab.sim.engine.state import FairState, Run, fair_state, run_state


def types() -> dict[str, Any]:
    """numba's type for each annotation."""
    from rocelab.base.byreference import by_reference

    by_reference(FairState)
    by_reference(Run)
    numba = compiling.numba()
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


LIBRARY = FunctionLibrary(Path(__file__).parent, types=types, makes_arrays=False)
part, making_arrays, entry = LIBRARY.part, LIBRARY.making_arrays, LIBRARY.entry
