"""The counters of the servers' agents, summed over all runs since the first look.

Reads the files that agents write while they run (`rocelab.agent.live`); the sum per server only
grows. A run may be shorter than the time between two samples, so agents are read more often.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import astuple

from rocelab.agent.live import RECORD_BYTES, LiveCounters, unpacked
from rocelab.record import LabFiles
from rocelab.traffic.session import LIVE_FOLDER

LOOK_INTERVAL_S = 0.15
"""The time between looks. An agent whose file was seen once is counted to its end: a run lasts
longer than this, as agents start before it and wait for its last packets
(`rocelab.traffic.session.QUIET_NS`)."""


class EndpointTracker:
    """Follows the agents of a lab. A file that was seen stays open, so that its last content is
    read even after its removal."""

    def __init__(self, files: LabFiles) -> None:
        self._folder = files.root / LIVE_FOLDER
        self._open: dict[str, int] = {}
        self._latest: dict[str, LiveCounters] = {}
        self._ended: dict[str, LiveCounters] = {}

    def update(self) -> None:
        """Read the counters of running agents, and the last ones of agents that have ended."""
        for server, file in list(self._open.items()):
            # In this order: no agent writes to a removed file.
            removed = os.fstat(file).st_nlink == 0
            self._take(server, file)
            if removed:
                os.close(self._open.pop(server))
        with suppress(FileNotFoundError):
            for path in self._folder.iterdir():
                if path.name not in self._open:
                    with suppress(FileNotFoundError):
                        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                        self._open[path.name] = file
                        self._take(path.name, file)

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def totals(self) -> dict[str, LiveCounters]:
        """The sums, by server; time and process are those of the last run."""
        return {
            server: added(latest, self._ended.get(server))
            for server, latest in self._latest.items()
        }

    def _take(self, server: str, file: int) -> None:
        record = unpacked(os.pread(file, RECORD_BYTES, 0))
        if record is None:
            return
        before = self._latest.get(server)
        if before is not None and before.pid != record.pid:
            self._ended[server] = added(before, self._ended.get(server))
        self._latest[server] = record


def added(counters: LiveCounters, more: LiveCounters | None) -> LiveCounters:
    """The sum of two; time and process are those of the first."""
    if more is None:
        return counters
    _, _, *first = astuple(counters)
    _, _, *second = astuple(more)
    sums = [a + b for a, b in zip(first, second, strict=True)]
    return LiveCounters(counters.pid, counters.time_ns, *sums)
