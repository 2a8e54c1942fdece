"""An action during a job, independent of the machine's speed."""

from __future__ import annotations

from collections.abc import Callable

from rocelab.progress import Progress


class Midway:
    """Acts once, when a share of the iterations is finished; used as a job's `progress`."""

    def __init__(self, action: Callable[[], object], share: float = 0.5) -> None:
        self._action = action
        self._share = share
        self.done = False

    def __call__(self, progress: Progress) -> None:
        if not self.done and progress.done >= self._share * progress.total:
            self.done = True
            self._action()
