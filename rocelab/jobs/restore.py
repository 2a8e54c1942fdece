"""Restores: all ranks read their part of a checkpoint from storage servers at once.

Validates the block `restore` of a job and makes its `Workload`.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.jobs.storage import StorageSpec, storage_step, striped, turned
from rocelab.jobs.workload import Workload
from rocelab.jobs.workloads import JobPlace, WorkloadRate


class RestoreSpec(StorageSpec):
    """Every rank reads its bytes from storage; one iteration is one restore."""

    title = "ranks that read a checkpoint from storage servers, all at once"
    place = 7

    def workload(self, place: JobPlace) -> Workload:
        sends = turned(striped(place.own_ranks, place.endpoints[0], self.size, self.stripes))
        steps = (
            storage_step("read", (number - 1,) if number else (), sends, number)
            for number in range(place.iterations)
        )
        return Workload(place.ranks, tuple(steps))

    def rates(self, seconds: Sequence[float]) -> list[WorkloadRate]:
        """What storage read in a second."""
        return [self.moved(seconds)]
