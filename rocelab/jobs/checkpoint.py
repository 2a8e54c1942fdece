"""Checkpoints: ranks write their part of a state to storage servers, at once and at an interval.

Validates the block `checkpoint` of a job and makes its `Workload`. All ranks begin together, which
is an incast at every storage server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import sub
from typing import Annotated

from pydantic import Field

from rocelab.base.units import DurationNs
from rocelab.jobs.storage import (
    LONGEST_INTERVAL,
    StorageSpec,
    busiest_s,
    check_interval,
    due_step,
    storage_step,
    striped,
)
from rocelab.jobs.workload import Step, Workload
from rocelab.jobs.workloads import JobPlace, WorkloadRate

WRITE = "write"


class CheckpointSpec(StorageSpec):
    """Every rank writes its bytes to storage; one iteration is one checkpoint."""

    title = "ranks that write to storage servers"
    place = 6

    every: Annotated[
        DurationNs | None,
        Field(
            gt=0,
            le=LONGEST_INTERVAL,
            description="from the begin of a checkpoint to that of the next, or its end where it "
            "takes longer; left out: each follows the one before",
        ),
    ] = None

    def workload(self, place: JobPlace) -> Workload:
        """Raises InputError for checkpoints that cannot be written within `every`."""
        sends = striped(place.own_ranks, place.endpoints[0], self.size, self.stripes)
        if self.every is not None:
            check_interval(place.name, "a checkpoint", busiest_s(sends, place), self.every)
        steps: list[Step] = []
        due: int | None = None
        for iteration in range(place.iterations):
            after = [len(steps) - 1] if steps else []
            if iteration and self.every is not None:
                begins = () if due is None else (due,)
                due = len(steps)
                steps.append(due_step(begins, self.every, iteration))
                after.append(due)
            steps.append(storage_step(WRITE, tuple(after), sends, iteration))
        return Workload(place.ranks, tuple(steps))

    def latencies(self, ends_s: Sequence[Mapping[str, float]]) -> list[WorkloadRate]:
        """What storage wrote in a second, and the part of the interval that each checkpoint took
        from when it was due."""
        times_s = [ends[WRITE] for ends in ends_s]
        if self.every is None:
            return [self.moved(times_s)]
        every_s = self.every / 1e9
        # One that is late makes the next wait, which is no time of writing.
        waits_s = [0.0, *(max(0.0, time_s - every_s) for time_s in times_s[:-1])]
        rate = self.moved(map(sub, times_s, waits_s))
        parts = [100 * time_s / every_s for time_s in times_s]
        return [rate, WorkloadRate("interval_share", "of its interval", "%", parts)]
