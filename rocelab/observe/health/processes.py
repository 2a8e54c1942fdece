"""Asks what `rocelab status` asks while health is watched: whether all processes of a lab work.

It reads /proc and asks every bgpd, which costs time that a measured run has not, so that only those
who watch health alone ask (`HealthMonitor`). A thread of its own waits for the answers, as a daemon
that was stopped gives none.
"""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor

from rocelab.base.errors import RocelabError
from rocelab.lab.lab import RunningLab
from rocelab.lab.status import read_status
from rocelab.linux.closing import Closing

INTERVAL_S = 5.0
"""The time between two questions."""
ANSWER_S = 5.0
"""How long a daemon may take to answer: a hundred times what it takes at rest."""


class ProcessPoller(Closing):
    """The processes of a lab that do not work."""

    def __init__(self, lab: RunningLab) -> None:
        self._lab = lab
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="processes")
        self._asked: Future[tuple[str, ...]] | None = None
        self._due_s = 0.0
        self._latest: tuple[str, ...] = ()

    def close(self) -> None:
        """Wait for an answer on its way."""
        self._pool.shutdown(cancel_futures=True)

    def problems(self, *, fresh: bool) -> tuple[str, ...]:
        """The newest answer, and the next question if it is due; `fresh` waits for an answer to a
        question that is asked now."""
        if self._asked is not None and (fresh or self._asked.done()):
            self._latest, self._asked = self._asked.result(), None
        if self._asked is None and (fresh or time.monotonic() >= self._due_s):
            self._due_s = time.monotonic() + INTERVAL_S
            self._asked = self._pool.submit(self._ask)
            if fresh:
                self._latest, self._asked = self._asked.result(), None
        return self._latest

    def _ask(self) -> tuple[str, ...]:
        try:
            return read_status(self._lab, ANSWER_S).problems
        except (OSError, RocelabError) as error:
            # The lab may be going down, which the readings of its counters find out.
            return (f"the state of the lab cannot be read: {error}",)
