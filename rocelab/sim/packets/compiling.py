"""The library of the packet engine's functions, none of which makes an array, and decorators."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, get_args, get_type_hints

import numpy as np

from rocelab.base.arrays import Ints, Longs
from rocelab.base.compiling import OFF, compile_first, compiled_in, compiler, numba
from rocelab.base.library import FunctionLibrary
from rocelab.jobs.congestion import sender_files
from rocelab.sim.packets.state import (
    Bitmaps,
    Counts,
    FlowWay,
    PacketFlow,
    PacketState,
    Rates,
    Rules,
    Turns,
    zeros,
)

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_SOURCES = Path(__file__).parent
_SENDERS = sender_files()


def types() -> dict[str, Any]:
    """numba's type for each annotation."""
    from rocelab.base.byreference import by_reference

    by_reference(PacketState)
    compiler = numba()
    rows = {
        kind.__name__: compiler.typeof(zeros(kind, 1)[0]) for kind in (PacketFlow, FlowWay, Turns)
    }
    return {
        "None": compiler.void,
        "bool": compiler.boolean,
        "int": compiler.int64,
        "float": compiler.float64,
        "Longs": compiler.int64[::1],
        "Floats": compiler.float64[::1],
        "PacketState": compiler.typeof(_without_anything()),
        **rows,
    }


def _without_anything() -> PacketState:
    """A state with empty tables."""
    samples: dict[object, Any] = {
        Bitmaps: np.empty((0, 0), np.int64),
        Rates: np.empty((0, 0)),
        Longs: np.empty(0, np.int64),
        Ints: np.empty(0, np.int32),
        Rules: zeros(Rules, 1)[0],
        Counts: zeros(Counts, 1)[0],
    }
    hints = get_type_hints(PacketState, include_extras=True)
    tables: dict[str, Any] = {
        name: samples[hint] if hint in samples else zeros(get_args(hint)[0], 0)
        for name, hint in hints.items()
    }
    return PacketState(**tables)


LIBRARY = FunctionLibrary(_SOURCES, _SENDERS, types=types, makes_arrays=False)
part, inlined, entry = LIBRARY.part, LIBRARY.inlined, LIBRARY.entry
"""inlined: for what happens for each packet."""

compiled = compiler(_SOURCES, _SENDERS, makes_arrays=False)
"""For the functions of congestion controls of plug-ins."""

compile_for = partial(compile_first, _SOURCES, _SENDERS)


def joined(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """As `inlined`, for a function that encloses compiled ones, by which numba cannot keep it: it
    is kept as part of those that call it."""
    if os.environ.get(OFF) == "1":
        return function
    return compiled_in(None, function, makes_arrays=False, is_inlined=True)
