"""The door of patterns: those that are registered, ours and those of installed packages.

An entry point of the group `rocelab.jobs.patterns` has the name of a pattern and its class.
"""

from __future__ import annotations

from rocelab.base.doors import Door
from rocelab.jobs.patterns.base import JobPattern

GROUP = "rocelab.jobs.patterns"


def _pattern(name: str, value: object) -> JobPattern:
    if not (isinstance(value, type) and issubclass(value, JobPattern)):
        raise TypeError(f"expected a class of {JobPattern.__module__}.{JobPattern.__name__}")
    if value.sends is JobPattern.sends:
        raise TypeError(f"{value.__name__} lacks sends")
    return value()


PATTERNS: Door[JobPattern] = Door(GROUP, "pattern", _pattern)
