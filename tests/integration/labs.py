"""Labs that tests share or make: up while a block runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rocelab.runtime.lab import Lab
from rocelab.runtime.teardown import take_down


@contextmanager
def running(file: Path) -> Iterator[Lab]:
    """The lab of this file, up; it is down when the block ends, however it ends."""
    lab = Lab.planned(file)
    take_down(lab.name)
    try:
        lab.up()
        yield lab
    finally:
        take_down(lab.name)
