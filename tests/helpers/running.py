"""Labs that tests share or make: up while a block runs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rocelab.lab.lab import PlannedLab, Running
from rocelab.lab.teardown import take_down

_STEPS = 3_000_000
_ENOUGH_S = 0.08
MOST_SLOWED = 4


def slowed(dilation: int) -> int:
    """The dilation for this machine as busy as it is now, where `dilation` is enough for one that
    counts to `_STEPS` in `_ENOUGH_S`: a slow machine needs a slower lab, as the product says of a
    run that it could not feed."""
    begun_s = time.monotonic()
    for _ in range(_STEPS):
        pass
    share = (time.monotonic() - begun_s) / _ENOUGH_S
    return round(dilation * min(MOST_SLOWED, max(1.0, share)))


@contextmanager
def running(lab: PlannedLab[Running]) -> Iterator[Running]:
    """The lab, up; it is down when the block ends, however it ends."""
    take_down(lab.name)
    try:
        yield lab.up()
    finally:
        take_down(lab.name)
