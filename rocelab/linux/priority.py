"""Priority over the machine's other work, for threads that must be on time.

A lab's data plane is the CPU time of its senders: the kernel carries a packet from switch to switch
in the sender's system call. In a real switch an ASIC does that and never waits for bgpd, so here
the senders run before the routing daemons, and so does who records FIB changes or breaks the lab.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PR_SET_TIMERSLACK = 29


def set_timer_slack() -> None:
    """Make the calling thread wake at its deadline, not up to 50 us later (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def run_first(*, before_senders: bool = False) -> None:
    """Schedule the calling thread before all ordinary ones (SCHED_RR, sched(7)), but not its
    children; `before_senders`: also before those that called this without.

    Changes nothing if the machine does not allow it (CAP_SYS_NICE): the run's lag then shows the
    effect.
    """
    with suppress(PermissionError):
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        least = os.sched_get_priority_min(os.SCHED_RR)
        os.sched_setscheduler(0, policy, os.sched_param(least + before_senders))


@contextmanager
def running_first() -> Iterator[None]:
    """`run_first` within the context, in a thread that has other work too."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    run_first()
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)
