"""One at a time on this machine: what takes its CPUs would falsify what is measured beside it.

In: nothing. Out: a turn, held by bringing a lab up and by measuring in it, so that the workers of
pytest-xdist, and suites of several people, do not measure each other.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from labs.runtime.record import RUN_ROOT


@contextmanager
def turn() -> Iterator[None]:
    """Wait until nobody else has the turn, and hold it. It ends with the process at the latest."""
    RUN_ROOT.mkdir(mode=0o755, exist_ok=True)
    # The folder of all labs is there anyway, so that no lock file stays behind.
    descriptor = os.open(RUN_ROOT, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
