"""An action during a job, independent of the machine's speed."""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.trial import last_began_ns
from rocelab.base.progress import Progress
from rocelab.runs.jobs import MeasuredJobs


class Midway:
    """Acts once, when a share of the iterations is finished; used as the `progress` of one job."""

    def __init__(self, action: Callable[[], object], share: float = 0.5) -> None:
        self._action = action
        self._share = share
        self._done_ns: int | None = None

    def __call__(self, progress: Progress) -> None:
        if self._done_ns is None and progress.done >= self._share * progress.total:
            self._action()
            self._done_ns = time.clock_gettime_ns(time.CLOCK_REALTIME)

    def problems(self, run: MeasuredJobs) -> tuple[str, ...]:
        """Why the job may have been over for the action: a busy machine reads progress late."""
        assert self._done_ns is not None
        (report,) = run.reports
        if self._done_ns - run.started_ns < last_began_ns(report):
            return ()
        return ("not valid because the last iteration had begun before the action",)
