"""AllToAll: every rank sends to every other."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Call, JobPattern, Send
from rocelab.jobs.patterns.building import exchange, split


class AllToAll(JobPattern):
    """Every rank sends every other a part of its send buffer.

    It goes in rounds: rank r sends to r+1, then r+2, so that no rank receives from all at once. The
    part that a rank keeps is counted but not sent.
    """

    place = 3
    is_exchange = True
    is_divided = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        exchange(sends, [split(call.size_bytes, call.ranks)] * call.ranks, call.channels)
        return sends

    def count(self, call: Call) -> int:
        return call.ranks * (call.ranks - 1) * call.channels
