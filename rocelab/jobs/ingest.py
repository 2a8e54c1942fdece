"""Ingestion of samples: ranks get a batch at an interval, from storage or by way of reader hosts.

Validates the block `ingest` of a job and makes its `Workload`. Readers fetch the batches of their
ranks from storage, and pass them on once they are there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from rocelab.base.units import DurationNs
from rocelab.jobs.storage import (
    LONGEST_INTERVAL,
    Servers,
    StorageSpec,
    busiest_s,
    check_interval,
    due_step,
    storage_step,
    striped,
    turned,
)
from rocelab.jobs.workload import Sends, Step, Workload
from rocelab.jobs.workloads import JobPlace, WorkloadRate

FETCH, DELIVER = "fetch", "deliver"


class IngestSpec(StorageSpec):
    """Every rank gets a batch at an interval, whether the one before has come or not; one iteration
    is one batch."""

    title = "batches of samples that ranks read from storage servers, steadily"
    place = 8

    every: Annotated[
        DurationNs,
        Field(
            gt=0, le=LONGEST_INTERVAL, description="from one batch to the next; size is a rank's"
        ),
    ]
    readers: Annotated[
        Servers | None,
        Field(
            description="the hosts that read from storage and pass batches on, ranks in turn; left "
            "out: ranks read themselves"
        ),
    ] = None

    @property
    def endpoints(self) -> tuple[tuple[str, ...], ...]:
        return (self.storage,) if self.readers is None else (self.storage, self.readers)

    def workload(self, place: JobPlace) -> Workload:
        """Raises InputError for batches that no network brings within `every`."""
        parts = self._sends(place)
        least_s = max(busiest_s(sends, place) for _, sends in parts)
        check_interval(place.name, "a batch", least_s, self.every)
        steps: list[Step] = []
        due: int | None = None
        for iteration in range(place.iterations):
            if iteration:
                begins = () if due is None else (due,)
                due = len(steps)
                steps.append(due_step(begins, self.every, iteration))
            after = () if due is None else (due,)
            for name, sends in parts:
                steps.append(storage_step(name, after, sends, iteration))
                after = (len(steps) - 1,)
        return Workload(place.ranks, tuple(steps))

    def _sends(self, place: JobPlace) -> list[tuple[str, Sends]]:
        if self.readers is None:
            read = striped(place.own_ranks, place.endpoints[0], self.size, self.stripes)
            return [(DELIVER, turned(read))]
        storage, readers = place.endpoints
        rank = place.own_ranks
        size = np.full(place.own, self.size, np.int64)
        of_rank = readers[rank % len(readers)]
        busy = readers[: place.own]
        fetched = np.bincount(of_rank, size)[busy]
        parts = min(self.stripes, len(storage))
        share, rest = np.divmod(np.repeat(fetched, parts), parts)
        share = share + (np.tile(np.arange(parts), len(busy)) < rest)
        source = storage[np.arange(len(share)) % len(storage)]
        kept = share > 0
        fetch = Sends(source[kept], np.repeat(busy, parts)[kept], share[kept].astype(np.int64))
        return [(FETCH, fetch), (DELIVER, Sends(of_rank, rank, size))]

    def latencies(self, ends_s: Sequence[Mapping[str, float]]) -> list[WorkloadRate]:
        """The batches that took longer than the interval, in percent of all."""
        late = [ends[DELIVER] * 1e9 > self.every for ends in ends_s]
        share = 100 * sum(late) / len(late)
        return [WorkloadRate("late_batches", "late batches", "%", [share])]
