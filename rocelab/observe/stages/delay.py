"""Measures how late netlink events are read, by changes at known instants beside the real ones.

The probe's own namespace has a loopback that goes up and down every 25 ms; the stamps that a watch
gives these changes make a `ReadDelay`. A watch stamps an event when it has read it, so the figure
includes everything that keeps the watch from the CPU during a drill.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Sequence

from rocelab.lab import wiring
from rocelab.linux import namespaces, netlink
from rocelab.linux.priority import run_first
from rocelab.results.stages import ReadDelay

INTERVAL_S = 0.025


class DelayProbe:
    """Makes changes from `start` to `stop` in the namespace `descriptor`."""

    def __init__(self) -> None:
        self.descriptor = namespaces.on_own_thread(_fresh_namespace)
        self._sent_ns: list[int] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._change, name="read-delay", daemon=True)

    def start(self) -> None:
        """Begin; a watch must already listen to `descriptor`."""
        self._thread.start()

    def stop(self) -> None:
        """Return when the last change has been made."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()

    def close(self) -> None:
        """Close the namespace."""
        os.close(self.descriptor)

    def delay(self, read_ns: Sequence[int]) -> ReadDelay | None:
        """The delay of events stamped `read_ns`, in order; None without events."""
        return delay_of(self._sent_ns, read_ns)

    def _change(self) -> None:
        namespaces.enter(self.descriptor)
        run_first()
        up = False
        with netlink.open_socket() as channel:
            while not self._stopping.wait(INTERVAL_S):
                up = not up
                message = wiring.set_up(wiring.LOOPBACK_INDEX, up=up)
                self._sent_ns.append(time.clock_gettime_ns(time.CLOCK_REALTIME))
                netlink.send_batch(channel, [message])


def delay_of(sent_ns: Sequence[int], read_ns: Sequence[int]) -> ReadDelay | None:
    """The spread of read minus sent, the n-th event being that of the n-th change; None without
    events. The 99th percentile is the smallest delay that 99 % do not exceed."""
    delays = sorted(read - sent for sent, read in zip(sent_ns, read_ns, strict=False))
    if not delays:
        return None
    count = len(delays)
    return ReadDelay(
        probes=count,
        median_ns=delays[(count - 1) // 2],
        p99_ns=delays[math.ceil(0.99 * count) - 1],
        max_ns=delays[-1],
    )


def _fresh_namespace() -> int:
    namespaces.unshare()
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
