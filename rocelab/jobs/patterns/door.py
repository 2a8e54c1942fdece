"""The door of patterns: those that are registered, ours and those of installed packages.

An entry point of the group `rocelab.jobs.patterns` has the name of a pattern and its class.
"""

from __future__ import annotations

from rocelab.base.doors import Door
from rocelab.jobs.patterns.base import JobPattern

GROUP = "rocelab.jobs.patterns"


def _pattern(name: str, found: object) -> JobPattern:
    if not (isinstance(found, type) and issubclass(found, JobPattern)):
        raise TypeError(f"expected a class of {JobPattern.__module__}.{JobPattern.__name__}")
    if found.sends is JobPattern.sends:
        raise TypeError(f"{found.__name__} lacks sends")
    return found()


PATTERNS: Door[JobPattern] = Door(GROUP, "pattern", _pattern)
