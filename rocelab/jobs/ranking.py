"""Training of a ranking model (DLRM): embeddings exchanged among all ranks, dense layers reduced.

Validates the block `ranking` of a job and makes its `Workload`. Whole embedding tables are
distributed over the ranks and everything else is replicated (Naumov et al. 2019 (DLRM);
Mudigere et al. 2022).
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from rocelab.base.arrays import Longs
from rocelab.base.units import DurationNs
from rocelab.base.wording import RefusedError
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.merged_sends import exchange
from rocelab.jobs.parallelism import in_groups
from rocelab.jobs.steps import Steps
from rocelab.jobs.transport import MAX_DURATION
from rocelab.jobs.workload import Workload
from rocelab.jobs.workloads import JobPlace, WorkloadSpec

DENSE_BYTES = 4
MAX_RANKS = 4096


class RankingSpec(WorkloadSpec):
    """One iteration sends embeddings to the ranks whose samples need them, and their gradients
    back."""

    title = "training of a DLRM"
    place = 1
    ranks: Annotated[int, Field(ge=2, le=MAX_RANKS, description="GPUs, each on a NIC of its own")]
    tables: Annotated[int, Field(ge=1, le=10**6, description="embedding tables, dealt in turn")]
    dimension: Annotated[int, Field(ge=1, le=10**5, description="elements of an embedding")]
    local_batch: Annotated[int, Field(ge=1, le=10**7, description="samples of a rank")]
    bits: Annotated[Literal[16, 32], Field(description="of an element as it is sent")] = 32
    dense_parameters: Annotated[
        int, Field(ge=1, le=10**12, description="parameters of the dense layers, reduced in fp32")
    ]
    forward: Annotated[
        DurationNs, Field(ge=0, le=MAX_DURATION, description="computation of the forward pass")
    ] = 0
    backward: Annotated[
        DurationNs, Field(ge=0, le=MAX_DURATION, description="computation of the backward pass")
    ] = 0

    @model_validator(mode="after")
    def _gradients_divide(self) -> Self:
        if self.dense_parameters * DENSE_BYTES // 2 < self.ranks:
            raise RefusedError(
                f"{self.dense_parameters} dense parameters do not divide over {self.ranks} ranks",
                "give more dense_parameters",
                keys=("dense_parameters", "ranks"),
            )
        return self

    @property
    def row_bytes(self) -> int:
        """One table's pooled embeddings for one rank's samples."""
        return self.local_batch * self.dimension * self.bits // 8

    def workload(self, place: JobPlace) -> Workload:
        return ranking_workload(self, iterations=place.iterations)


def ranking_workload(spec: RankingSpec, *, iterations: int = 1) -> Workload:
    """Forward: the exchange during the bottom layers, then the top layers. Backward: the top
    layers, then gradients of embeddings during the bottom layers; dense gradients at the end of
    each half.

    Bottom and top layers count as half of each pass and of the dense parameters. Not modelled: the
    exchange of the sparse indices, which happens ahead for the next batch (Mudigere et al. 2022).
    """
    steps, everyone = Steps(), np.arange(spec.ranks, dtype=np.int32)[None]
    forward_s, backward_s = spec.forward / 2e9, spec.backward / 2e9
    half = in_groups(Pattern.ALLREDUCE, spec.dense_parameters * DENSE_BYTES / 2, everyone)
    sizes = embedding_bytes(spec)
    exchanged = steps.add("alltoallv forward", sends=exchange(sizes))
    bottom = steps.add("forward bottom", (), forward_s)
    top = steps.add("forward top", (exchanged, bottom), forward_s)
    top = steps.add("backward top", (top,), backward_s)
    exchanged = steps.add("alltoallv backward", (top,), sends=exchange(sizes.T))
    reduced = steps.add("allreduce top", (top,), sends=half)
    bottom = steps.add("backward bottom", (top,), backward_s)
    reduced = steps.add("allreduce bottom", (bottom, reduced), sends=half)
    steps.add("optimizer", (exchanged, reduced))
    return steps.workload(spec.ranks, iterations)


def embedding_bytes(spec: RankingSpec) -> Longs:
    """The AlltoAllv of the forward pass, [source][destination]: each rank sends every other its
    tables' rows.

    If the tables do not divide evenly the first ranks hold one more, and are the slowest; if there
    are fewer tables than ranks the other ranks send nothing.
    """
    rank = np.arange(spec.ranks, dtype=np.int64)
    tables = spec.tables // spec.ranks + (rank < spec.tables % spec.ranks)
    return np.repeat((tables * spec.row_bytes)[:, None], spec.ranks, axis=1)
