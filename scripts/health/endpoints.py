"""What the servers' agents have counted, over all runs since the first look.

In: the files that agents write while they run (`traffic.live`). Out: a sum per server that only
grows. A run may be shorter than the time between two samples, so agents are looked at more often.
"""

from __future__ import annotations

from dataclasses import astuple

from labs.runtime.record import LabFiles
from traffic.live import LiveCounters, unpacked
from traffic.session import LIVE_FOLDER

LOOK_INTERVAL_S = 0.15
"""An agent waits longer than this between its last count and its end (`traffic.session.QUIET_NS`),
so that none is missed."""


class EndpointTracker:
    """Follows the agents of a lab."""

    def __init__(self, files: LabFiles) -> None:
        self._folder = files.root / LIVE_FOLDER
        self._latest: dict[str, LiveCounters] = {}
        self._ended: dict[str, LiveCounters] = {}

    def look(self) -> None:
        """Take the counters of the agents that run now."""
        try:
            files = list(self._folder.iterdir())
        except FileNotFoundError:
            return
        for file in files:
            try:
                found = unpacked(file.read_bytes())
            except FileNotFoundError:
                continue
            if found is not None:
                self._take(file.name, found)

    def totals(self) -> dict[str, LiveCounters]:
        """The sums, by server; time and process are those of the last run."""
        return {
            server: added(latest, self._ended.get(server))
            for server, latest in self._latest.items()
        }

    def _take(self, server: str, found: LiveCounters) -> None:
        before = self._latest.get(server)
        if before is not None and before.pid != found.pid:
            self._ended[server] = added(before, self._ended.get(server))
        self._latest[server] = found


def added(counters: LiveCounters, more: LiveCounters | None) -> LiveCounters:
    """The sum of two; time and process are those of the first."""
    if more is None:
        return counters
    _, _, *ours = astuple(counters)
    _, _, *theirs = astuple(more)
    sums = [a + b for a, b in zip(ours, theirs, strict=True)]
    return LiveCounters(counters.pid, counters.time_ns, *sums)
