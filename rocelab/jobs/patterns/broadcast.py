"""Broadcast: a chain."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Algorithm, Call, JobPattern, Send
from rocelab.jobs.patterns.building import PIECE_BYTES, chain, pieces, rotated, split


class Broadcast(JobPattern):
    """All ranks get the buffer of one.

    A chain in ring order from `root`, in pieces of PIECE_BYTES: it moves each byte once over each
    NIC, as a binomial tree does not.
    """

    place = 5
    is_in_ring_order = True
    has_few_peers = True
    is_rooted = True
    algorithms = frozenset({Algorithm.RING})

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        parts = split(call.size_bytes, call.channels)
        for order, part in zip(call.rings, parts, strict=True):
            for piece in pieces(part):
                chain(sends, rotated(order, order.index(call.root)), piece)
        return sends

    def count(self, call: Call) -> int:
        return (call.ranks - 1) * (-(-call.size_bytes // PIECE_BYTES) + call.channels)
