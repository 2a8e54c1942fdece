"""Decorators for the packet engine's functions, none of which makes an array."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rocelab.base.compiling import compile_first, compiler

_SOURCES = Path(__file__).parent
_compiler = partial(compiler, _SOURCES, makes_arrays=False)

compiled = _compiler()
inlined = _compiler(is_inlined=True)
"""For what happens for each packet: called by compiled functions only."""

compile_for = partial(compile_first, _SOURCES)
