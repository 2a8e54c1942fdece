"""Incast: single sends."""

from __future__ import annotations

from rocelab.jobs.patterns.single import SinglePattern


class Incast(SinglePattern):
    """All ranks send to rank 0."""

    place = 7

    def busbw_factor(self, ranks: int) -> float:
        """nccl-tests lacks it: the receiver's NIC takes in that many sizes."""
        return float(ranks - 1)

    def pairs(self, ranks: int, seed: int) -> tuple[tuple[int, int], ...]:
        return tuple((rank, 0) for rank in range(1, ranks))
