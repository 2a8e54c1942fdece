"""Waiting for a condition, however long the machine takes."""

from __future__ import annotations

import time
from collections.abc import Callable

from rocelab.lab.lab import RunningLab
from rocelab.linux.fibwatch import FibWatch
from rocelab.observe.timeline import FibTimeline, opened_namespaces

LIMIT_S = 300.0
"""Longer than any event takes on a busy machine: only a failing test waits so long."""
RUN_LIMIT_S = 1800.0
"""The same of a command with labs of its own, or of a suite of tests."""


def wait_until(
    condition: Callable[[], object], what: str = "the condition", limit_s: float = LIMIT_S
) -> None:
    """Return as soon as `condition` holds; at the limit fail with `what`."""
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, f"not within {limit_s:g} s: {what}"
        time.sleep(0.01)


def wait_for_tables(watch: FibWatch, true: Callable[[], bool]) -> None:
    """Return when `true()` holds, checked after each change of a table; fail at the limit."""
    end = time.monotonic() + LIMIT_S
    while not true():
        assert time.monotonic() < end, "the tables did not come to what was expected"
        watch.events(0.5)


def wait_until_whole(lab: RunningLab) -> None:
    """Wait until every switch of the lab has every route with its full width."""
    with opened_namespaces(lab, lab.fabric.switches) as netns, FibTimeline(lab, netns) as fib:
        fib.wait_until_whole(LIMIT_S)
