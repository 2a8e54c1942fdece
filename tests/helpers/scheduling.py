"""Whether threads may have a real-time priority here (CAP_SYS_NICE)."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

FIRST = os.SCHED_RR | os.SCHED_RESET_ON_FORK


def may_run_first() -> bool:
    """Tried in a thread of its own."""

    def try_it() -> bool:
        try:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
        except PermissionError:
            return False
        return True

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(try_it).result()
