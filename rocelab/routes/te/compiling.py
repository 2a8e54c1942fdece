"""The library of the functions of this package, none of which makes an array, and decorators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rocelab.base.compiling import numba
from rocelab.base.library import FunctionLibrary
from rocelab.routes.te.problem import (
    FlowRequests,
    Lists,
    Offer,
    Placed,
    Scratch,
    Work,
    fresh_work,
    scratch,
)


def types() -> dict[str, Any]:
    """numba's type for each annotation."""
    from rocelab.base.byreference import by_reference

    for kind in (Offer, FlowRequests, Scratch, Placed, Lists, Work):
        by_reference(kind)
    compiler, work = numba(), fresh_work(1, 1, 1)
    longs, ints, floats = work.moved, work.path, work.load_bps
    table = np.zeros((1, 1), np.int32)
    return {
        "None": compiler.void,
        "bool": compiler.boolean,
        "int": compiler.int64,
        "float": compiler.float64,
        "tuple[float, float]": compiler.types.UniTuple(compiler.float64, 2),
        "Longs": compiler.typeof(longs),
        "Ints": compiler.typeof(ints),
        "Floats": compiler.typeof(floats),
        "Offer": compiler.typeof(Offer(table, longs, ints, ints, floats)),
        "FlowRequests": compiler.typeof(FlowRequests(ints, ints, table, floats)),
        "Scratch": compiler.typeof(scratch(1, 1)),
        "Placed": compiler.typeof(Placed(ints, table)),
        "Lists": compiler.typeof(work.lists),
        "Work": compiler.typeof(work),
    }


LIBRARY = FunctionLibrary(Path(__file__).parent, types=types, makes_arrays=False)
part, entry = LIBRARY.part, LIBRARY.entry
