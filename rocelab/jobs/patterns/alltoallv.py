"""AllToAllV: every rank sends to every other."""

from __future__ import annotations

import random
from collections.abc import Sequence

from rocelab.jobs.patterns.base import OF_EXCHANGES, Call, JobPattern, Send
from rocelab.jobs.patterns.building import count_exchanged, exchange


class AllToAllV(JobPattern):
    """As AlltoAll, with parts of sizes drawn from the seed."""

    place = 4
    algorithms = OF_EXCHANGES
    is_exchange = True
    is_in_ring_order = True
    is_divided = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        rows = uneven_sizes(call.ranks, call.size_bytes, call.seed)
        exchange(sends, rows, call)
        return sends

    def count(self, call: Call) -> int:
        return count_exchanged(call)


def uneven_sizes(ranks: int, size_bytes: int, seed: int) -> list[list[int]]:
    """AlltoAllv's bytes [source][destination]: each row a random division of `size_bytes`.

    All divisions are equally likely, so a row's largest part is about ln(ranks) times the mean.
    """
    rng = random.Random(seed)  # noqa: S311 - repeatable draws, not secrets
    rows = []
    for _ in range(ranks):
        cuts = sorted(int(rng.random() * (size_bytes + 1)) for _ in range(ranks - 1))
        rows.append([high - low for low, high in zip([0, *cuts], [*cuts, size_bytes], strict=True)])
    return rows
