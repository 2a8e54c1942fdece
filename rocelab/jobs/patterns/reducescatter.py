"""ReduceScatter: a ring."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Algorithm, Call, JobPattern, Send
from rocelab.jobs.patterns.building import add_aggregated, add_ring


class ReduceScatter(JobPattern):
    """Each rank gets a part of the sum of all inputs."""

    place = 2
    algorithms = frozenset({Algorithm.RING, Algorithm.NVLS, Algorithm.PAT})
    is_in_ring_order = True
    has_few_peers = True
    is_divided = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        if call.algorithm is Algorithm.PAT:
            add_aggregated(sends, call.ranks, call.size_bytes, reduces=True)
            return sends
        add_ring(sends, call.rings, call.size_bytes, lambda ring: ring[1:] + ring[:1])
        return sends

    def count(self, call: Call) -> int:
        if call.algorithm is Algorithm.PAT:
            return call.ranks * (call.ranks - 1).bit_length()
        return call.ranks * (call.ranks - 1) * call.channels
