"""Chooses the engine's implementation: compiled by numba, or numpy alone.

Both give the same results to 1e-9. numba is an optional extra and is only imported when it is used.
"""

from __future__ import annotations

from enum import StrEnum

from rocelab import compiling
from rocelab.errors import MachineError


class Backend(StrEnum):
    """NUMBA solves only what an event affects; NUMPY solves everything at every event."""

    NUMBA = "numba"
    NUMPY = "numpy"


def best_backend() -> Backend:
    """numba if it is installed, else numpy."""
    return Backend.NUMBA if compiling.is_installed() else Backend.NUMPY


def chosen(backend: Backend | None) -> Backend:
    """`backend`, or the best available one. Raises MachineError for numba if it is not
    installed."""
    if backend is Backend.NUMBA and best_backend() is not Backend.NUMBA:
        raise MachineError("numba is not installed", "install rocelab[fast], or take numpy")
    return backend or best_backend()
