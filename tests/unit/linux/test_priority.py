"""Threads that run before others only for a while."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from rocelab.linux.priority import running_first
from tests.helpers.scheduling import FIRST, may_run_first


def policies(policy: int) -> tuple[int, int, int]:
    """The policy of a thread that has one of its own: before, in and after the context."""
    with suppress(PermissionError):  # an idle one may need rights to be another
        os.sched_setscheduler(0, policy, os.sched_param(0))
    before = os.sched_getscheduler(0)
    with running_first():
        during = os.sched_getscheduler(0)
    return before, during, os.sched_getscheduler(0)


@pytest.mark.parametrize("policy", [os.SCHED_OTHER, os.SCHED_BATCH])
def test_a_thread_runs_first_within_the_context_only(policy: int) -> None:
    with ThreadPoolExecutor(1) as pool:
        before, during, after = pool.submit(policies, policy).result()
    assert before == after != FIRST
    assert during == (FIRST if may_run_first() else before)


def test_what_it_starts_does_not_run_first() -> None:
    result = []
    with running_first():
        thread = threading.Thread(target=lambda: result.append(os.sched_getscheduler(0)))
        thread.start()
        thread.join()
    assert result == [os.SCHED_OTHER if may_run_first() else os.sched_getscheduler(0)]
