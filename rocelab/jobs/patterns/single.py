"""Patterns of single sends. Standard library only."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Call, JobPattern, Send
from rocelab.jobs.patterns.building import add_at_once


class SinglePattern(JobPattern):
    """A set of single sends, of as many bytes each, all at once."""

    is_single = True
    has_few_peers = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        for source, destination in self.pairs(call.ranks, call.seed):
            add_at_once(sends, source, destination, call.size_bytes, call.channels)
        return sends

    def count(self, call: Call) -> int:
        return call.ranks * call.channels
