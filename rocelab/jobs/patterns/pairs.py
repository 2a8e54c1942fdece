"""Pairs: single sends."""

from __future__ import annotations

from rocelab.base.errors import InputError
from rocelab.jobs.patterns.single import SinglePattern


class Pairs(SinglePattern):
    """Rank 2i sends to rank 2i+1."""

    place = 8

    def pairs(self, ranks: int, seed: int) -> tuple[tuple[int, int], ...]:
        if ranks % 2:
            raise InputError(f"{ranks} ranks do not make pairs", hint="use an even number of ranks")
        return tuple((rank, rank + 1) for rank in range(0, ranks, 2))
