"""Finds jobs of which nothing moves any more.

A queue pair that sends ends by itself: it fails once its retries are spent. One whose NIC is paused
sends nothing and would wait for ever, as in a deadlock, or behind a NIC that does not stop pausing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic_ns

from rocelab.agent.live import unpacked
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.tcp import RTO_MAX_NS

SECOND_NS = 10**9
MARGIN_NS = 10 * SECOND_NS
"""What a busy machine may add to the times that jobs wait by themselves."""
LOOK_NS = SECOND_NS


def patience_ns(jobs: Sequence[JobPlan]) -> int:
    """The longest time, in the lab's clock, in which nothing of `jobs` arrives though packets may
    still be sent: their retries, their computing, what hosts take, and a watchdog that frees
    queues."""
    longest = MARGIN_NS
    for job in jobs:
        transport, pfc = job.job.transport, job.fabric.spec.queues.pfc
        if transport.is_tcp:
            # The longest of TCP's timeouts, which is not the modelled network's.
            pause_ns = round(job.job.compute * job.dilation)
            longest = max(longest, MARGIN_NS + RTO_MAX_NS + pause_ns)
            continue
        waits_ns: float = (transport.retries + 1) * transport.ack_timeout + job.job.compute
        waits_ns += job.longest_wait_ns + job.start_ns
        if pfc is not None and pfc.watchdog is not None:
            waits_ns += pfc.watchdog.detection
        if job.hosts is not None:
            waits_ns += job.hosts.launch_ns + job.hosts.before_ns(is_local=False)
            waits_ns += job.least_ns or 0
        longest = max(longest, MARGIN_NS + round(waits_ns * job.dilation))
    return longest


class Standstill:
    """Watches the counters that agents publish in `folder` from when it is made; without a folder
    everything moves. Until `calm_ns`, CLOCK_MONOTONIC, nothing need move, as under a fault."""

    def __init__(self, folder: Path | None, patience_ns: int, calm_ns: int) -> None:
        self._folder = folder
        self._patience_ns = patience_ns
        self._moved: tuple[int, int] | None = None
        self._since_ns = calm_ns
        self._look_ns = 0

    def lasts_ns(self) -> int:
        """How long nothing has moved, once that is too long; else 0."""
        now_ns = monotonic_ns()
        if self._folder is None or now_ns < self._look_ns:
            return 0
        self._look_ns = now_ns + LOOK_NS
        moved = _moved(self._folder)
        if moved != self._moved:
            self._moved, self._since_ns = moved, max(now_ns, self._since_ns)
        still_ns = now_ns - self._since_ns
        return still_ns if still_ns > self._patience_ns else 0


def _moved(folder: Path) -> tuple[int, int]:
    """Bytes acknowledged and packets received, in all."""
    acked = received = 0
    for file in folder.iterdir():
        with suppress(FileNotFoundError):
            if (counters := unpacked(file.read_bytes())) is not None:
                acked, received = acked + counters.acked_bytes, received + counters.received
    return acked, received
