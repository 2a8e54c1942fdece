"""AllGather: a ring."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Algorithm, Call, JobPattern, Send
from rocelab.jobs.patterns.building import add_aggregated, add_ring


class AllGather(JobPattern):
    """All ranks get the data of all; the size is all ranks' output."""

    place = 1
    algorithms = frozenset({Algorithm.RING, Algorithm.NVLS, Algorithm.PAT})
    is_in_ring_order = True
    has_few_peers = True
    is_divided = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        if call.algorithm is Algorithm.PAT:
            add_aggregated(sends, call.ranks, call.size_bytes, reduces=False)
            return sends
        add_ring(sends, call.rings, call.size_bytes, lambda ring: ring)
        return sends

    def count(self, call: Call) -> int:
        if call.algorithm is Algorithm.PAT:
            return call.ranks * (call.ranks - 1).bit_length()
        return call.ranks * (call.ranks - 1) * call.channels
