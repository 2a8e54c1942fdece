"""Labs that tests share or make: up while a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rocelab.runtime.lab import Lab
from rocelab.runtime.teardown import take_down


@contextmanager
def running(lab: Lab) -> Iterator[Lab]:
    """The lab, up; it is down when the block ends, however it ends."""
    take_down(lab.name)
    try:
        lab.up()
        yield lab
    finally:
        take_down(lab.name)
