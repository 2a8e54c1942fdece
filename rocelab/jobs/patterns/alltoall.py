"""AllToAll: every rank sends to every other."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Call, JobPattern, Send
from rocelab.jobs.patterns.building import exchange, split


class AllToAll(JobPattern):
    """Every rank sends every other a part of its send buffer.

    Rank r sends to r+1, r+2 and so on, to as many at once as `in_flight` says: 1 is rounds, in
    which no rank receives from two. The part that a rank keeps is counted but not sent.
    """

    place = 3
    is_exchange = True
    is_divided = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        rows = [split(call.size_bytes, call.ranks)] * call.ranks
        exchange(sends, rows, call.channels, call.in_flight)
        return sends

    def count(self, call: Call) -> int:
        return call.ranks * (call.ranks - 1) * call.channels
