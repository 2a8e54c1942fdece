"""Pattern `halo`: each rank sends the size to both neighbours on a ring."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Call, JobPattern, Send


class Halo(JobPattern):
    """Each rank sends the size to both neighbours on a ring, all at once."""

    has_few_peers = True

    def sends(self, call: Call) -> Sequence[Send]:
        ranks = range(call.ranks)
        ways = {(rank, (rank + step) % call.ranks): None for rank in ranks for step in (-1, 1)}
        return [Send(n, a, b, call.size_bytes, ()) for n, (a, b) in enumerate(ways)]

    def busbw_factor(self, ranks: int) -> float:
        """The sizes that a NIC sends: with two ranks both neighbours are one."""
        return float(min(2, ranks - 1))
