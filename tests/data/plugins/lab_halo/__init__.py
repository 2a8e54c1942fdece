"""A pattern of jobs: each rank exchanges a halo with both neighbours, again and again."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.patterns.base import Call, JobPattern, Send

STEPS = 2


class Halo(JobPattern):
    """Each rank sends the size to both neighbours on a line, twice; then to the next."""

    has_few_peers = True

    def sends(self, call: Call) -> Sequence[Send]:
        sends: list[Send] = []
        heard: list[tuple[int, ...]] = [()] * call.ranks
        for _ in range(STEPS):
            hears: list[tuple[int, ...]] = [()] * call.ranks
            for source in range(call.ranks):
                for destination in (source - 1, source + 1):
                    if 0 <= destination < call.ranks:
                        number = len(sends)
                        sends.append(
                            Send(number, source, destination, call.size_bytes, heard[source])
                        )
                        hears[destination] += (number,)
            heard = hears
        return sends

    def busbw_factor(self, ranks: int) -> float:
        """A NIC in the middle sends so many sizes."""
        return 2.0 * STEPS
