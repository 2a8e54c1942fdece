"""A workload: all ranks compute, then each sends to the next, iteration by iteration."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from rocelab.base.units import DurationNs, SizeBytes
from rocelab.jobs.workload import Sends, Step, Workload
from rocelab.jobs.workloads import JobPlace, WorkloadSpec


class PulseSpec(WorkloadSpec):
    """All ranks compute, then each sends to the next."""

    peers = 1
    ranks: Annotated[int, Field(ge=2, le=2**17, description="GPUs, each on a NIC of its own")]
    size: Annotated[SizeBytes, Field(ge=1, description="what each sends")]
    compute: Annotated[DurationNs, Field(ge=0, description="before it sends")] = 0

    def workload(self, place: JobPlace) -> Workload:
        rank = np.arange(self.ranks, dtype=np.int32)
        size = np.full(self.ranks, self.size, np.int64)
        sends = Sends(rank, np.roll(rank, -1), size)
        steps = [
            Step(
                f"pulse {number + 1}",
                after=(number - 1,) if number else (),
                compute_s=self.compute / 1e9,
                sends=sends,
                iteration=number,
            )
            for number in range(place.iterations)
        ]
        return Workload(self.ranks, tuple(steps))
