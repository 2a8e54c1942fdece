"""Decorators for the packet engine's functions, none of which makes an array."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from rocelab.base.compiling import OFF, compile_first, compiled_in, compiler
from rocelab.jobs.congestion import sender_files

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_SOURCES = Path(__file__).parent
_SENDERS = sender_files()
_compiler = partial(compiler, _SOURCES, _SENDERS, makes_arrays=False)

compiled = _compiler()
inlined = _compiler(is_inlined=True)
"""For what happens for each packet: called by compiled functions only."""

compile_for = partial(compile_first, _SOURCES, _SENDERS)


def joined(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """As `inlined`, for a function that encloses compiled ones, by which numba cannot keep it: it
    is kept as part of those that call it."""
    if os.environ.get(OFF) == "1":
        return function
    return compiled_in(None, function, makes_arrays=False, is_inlined=True)
