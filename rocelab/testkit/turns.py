"""One at a time on this machine: what takes its CPUs would falsify what is measured beside it.

In: nothing. Out: a turn, held by bringing a lab up and by measuring in it, so that the workers of
pytest-xdist, and suites of several people, do not measure each other.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from rocelab.runtime.record import RUN_ROOT, TURN, is_still_at, open_turn


@contextmanager
def turn() -> Iterator[None]:
    """Wait until nobody else has the turn, and hold it. It ends with the process at the latest."""
    while True:
        descriptor = open_turn()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if is_still_at(descriptor, RUN_ROOT / TURN):
                yield
                return
        finally:
            os.close(descriptor)
