"""Gather: all at once to one rank."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Call, JobPattern, Send
from rocelab.jobs.patterns.building import add_at_once, split


class Gather(JobPattern):
    """One rank gets the data of all, all at once; the size is its output."""

    place = 6
    is_rooted = True
    has_few_peers = True
    is_divided = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        for rank, share in enumerate(split(call.size_bytes, call.ranks)):
            if rank != call.root:
                add_at_once(sends, rank, call.root, share, call.channels)
        return sends

    def count(self, call: Call) -> int:
        return call.ranks * call.channels
