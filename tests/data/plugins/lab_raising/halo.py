"""The pattern."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Call, JobPattern, Send


class RaisingPattern(JobPattern):
    """Ranks that raise."""

    has_few_peers = True

    def sends(self, call: Call) -> Sequence[Send]:
        return [Send(number, 0, 1, call.nothing, ()) for number in range(2)]  # type: ignore[attr-defined]
