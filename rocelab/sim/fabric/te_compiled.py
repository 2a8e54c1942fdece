"""Compiles the searches of traffic engineering with numba; without it they run as plain Python."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from rocelab.sim.compiling import cache_folder, compiled_in

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_FOLDER = cache_folder(list(Path(__file__).parent.glob("te*.py")))


def compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, compiled on its first call where numba is installed."""
    if importlib.util.find_spec("numba") is None:
        return function
    return compiled_in(_FOLDER, function)
