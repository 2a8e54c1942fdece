"""The workload."""

from __future__ import annotations

from rocelab.jobs.workload import Workload
from rocelab.jobs.workloads import JobPlace, WorkloadSpec


class RaisingWorkload(WorkloadSpec):
    """A workload that raises."""

    ranks: int = 2

    def workload(self, place: JobPlace) -> Workload:
        raise RuntimeError("two\nlines")
