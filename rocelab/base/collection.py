"""Garbage collection: seldom in commands, and not at all while what is made stays alive."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


def collect_seldom() -> None:
    """Search for reference cycles after 50,000 new objects instead of 700.

    To load a command makes 200,000 objects that stay; with the interpreter's thresholds searches
    through them took a tenth of the CPU time of a short command.
    """
    gc.set_threshold(50_000, 10, 10)


@contextmanager
def uncollected() -> Iterator[None]:
    """A time without garbage collection, which takes up to a third of that of 100,000 objects and
    more: the nodes and links of 32,256 GPUs, a million flows."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
