"""A recorded job as a user writes it: the block `trace` of a job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from rocelab.jobs.workloads import WorkloadSpec
from rocelab.sim.traces.replay import read_workload

if TYPE_CHECKING:
    from rocelab.base.progress import ProgressSink
    from rocelab.jobs.workload import Workload


class TraceSpec(WorkloadSpec):
    """A recorded job."""

    title = "a recorded job"
    place = 3
    peers = 0  # its steps are known when it is read

    file: Annotated[
        str,
        Field(
            min_length=1, description="the trace, or a folder of one per rank; from the job file"
        ),
    ]
    ranks: Annotated[
        int | None,
        Field(ge=2, le=2**17, description="of one trace that all ranks have alike: how many"),
    ] = None
    groups: Annotated[
        dict[str, Annotated[tuple[int, ...], Field(strict=False, min_length=1)]] | None,
        Field(description="ranks of process groups that the trace names and does not list"),
    ] = None
    dimensions: Annotated[
        tuple[Annotated[int, Field(ge=1)], ...],
        Field(strict=False, description="sizes of the dimensions that collectives name"),
    ] = ()

    @property
    def source(self) -> str:
        return f"trace {self.file}"

    def within(self, file: Path) -> Self:
        return self.model_copy(update={"file": str(file.parent / self.file)})

    def read(self, progress: ProgressSink) -> Workload:
        return read_workload(
            Path(self.file),
            self.ranks,
            groups=self.groups,
            dimensions=self.dimensions,
            progress=progress,
        )
