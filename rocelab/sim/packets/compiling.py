"""Decorators for the packet engine's functions, none of which makes an array."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from rocelab.compiling import compiler

_compiler = partial(compiler, Path(__file__).parent, makes_arrays=False)

compiled = _compiler()
inlined = _compiler(is_inlined=True)
"""For what happens for each packet: called by compiled functions only."""
