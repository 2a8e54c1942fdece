"""Running ahead of the machine's other work, for what must be on time.

A lab's data plane is the CPU time of its senders: the kernel carries a packet from switch to switch
in the sender's system call. In a switch that is an ASIC's work, which never waits for bgpd; so the
senders, and the thread that notes FIB changes, come before the routing daemons here too.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_PR_SET_TIMERSLACK = 29


def wake_on_time() -> None:
    """Have the calling thread wake at its deadline, not up to 50 us later (prctl(2))."""
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


def run_first() -> None:
    """Schedule the calling thread before all ordinary ones (SCHED_RR, sched(7)), its children not.

    Where the machine does not allow it (CAP_SYS_NICE) nothing changes: a run that suffers from that
    says so by its lag.
    """
    with suppress(PermissionError):
        policy = os.SCHED_RR | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(os.sched_get_priority_min(os.SCHED_RR)))
