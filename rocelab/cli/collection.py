"""Commands whose objects stay alive until their end: garbage collection would only cost time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """A command without garbage collection, which takes a fifth of the time of 100,000 objects and
    more: the nodes and links of 32,256 GPUs, a million flows."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
