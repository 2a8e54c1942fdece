"""AllToAll: every rank sends to every other."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import OF_EXCHANGES, Call, JobPattern, Send
from rocelab.jobs.patterns.building import count_exchanged, exchange, split


class AllToAll(JobPattern):
    """Every rank sends every other a part of its send buffer.

    Rank r sends to r+1, r+2 and so on, to as many at once as `in_flight` says: 1 is rounds, in
    which no rank receives from two. The part that a rank keeps is counted but not sent. direct: so.
    pxn: a rank of the sender's group, at the receiver's place in its own, relays it. hierarchical:
    all that ranks of a group relay is one message to each other group, after all have it.
    """

    place = 3
    algorithms = OF_EXCHANGES
    is_exchange = True
    is_in_ring_order = True
    is_divided = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        rows = [split(call.size_bytes, call.ranks)] * call.ranks
        exchange(sends, rows, call)
        return sends

    def count(self, call: Call) -> int:
        return count_exchanged(call)
