"""Whether the machine does other work: a turn waits until it does not, or is not taken at all."""

from __future__ import annotations

import os
import time
from pathlib import Path

from rocelab import MachineError

LIMIT_CPUS = 0.3
"""What services of an idle machine may take."""

WINDOW_S = 0.3
PATIENCE_S = 60.0

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


class BusyMachineError(MachineError):
    """Other work takes what a measurement needs."""


def busy_s() -> float:
    """CPU time that the machine has spent on anything, since it was started."""
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_PER_SECOND


def busy_cpus() -> float:
    """The CPUs that are in use now."""
    began_s, before_s = time.monotonic(), busy_s()
    time.sleep(WINDOW_S)
    return (busy_s() - before_s) / (time.monotonic() - began_s)


def wait_until_quiet(patience_s: float = PATIENCE_S) -> float:
    """Wait until other work takes LIMIT_CPUS at most; return what it takes.

    Raises BusyMachineError if it still takes more in the end.
    """
    deadline = time.monotonic() + patience_s
    while (cpus := busy_cpus()) > LIMIT_CPUS:
        if time.monotonic() > deadline:
            raise BusyMachineError(
                f"other work takes {cpus:.1f} CPUs of this machine",
                hint="run the same command again when it is idle, which continues; `--busy` "
                "measures beside other work, and the page says so",
            )
    return cpus
