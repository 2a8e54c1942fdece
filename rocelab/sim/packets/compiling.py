"""Decorators for the packet engine's functions, none of which makes an array."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from rocelab.compiling import cache_folder, compile_in, compiler

_SOURCES = Path(__file__).parent
_compiler = partial(compiler, _SOURCES, makes_arrays=False)

compiled = _compiler()
inlined = _compiler(is_inlined=True)
"""For what happens for each packet: called by compiled functions only."""


def compile_for(function: Callable[..., object], *arguments: object) -> None:
    """Compile a function for arguments like these, while other processes wait."""
    compile_in(cache_folder(_SOURCES), function, *arguments)
