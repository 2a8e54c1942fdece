"""Permutation: single sends."""

from __future__ import annotations

import random

from rocelab.jobs.patterns.single import SinglePattern


class Permutation(SinglePattern):
    """Every rank sends to another, drawn from the seed."""

    place = 9

    def pairs(self, ranks: int, seed: int) -> tuple[tuple[int, int], ...]:
        rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
        partners = list(range(ranks))
        # About one shuffle in e moves every rank; taking the first such one keeps all equally
        # likely.
        while any(rank == partner for rank, partner in enumerate(partners)):
            rng.shuffle(partners)
        return tuple(enumerate(partners))
