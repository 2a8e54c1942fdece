"""Checkpoints in a training job: after every so many steps its ranks write their state to storage.

Validates the key `checkpoint` of a block `training`, adds the writes to its `Workload`, and says
what they cost. The storage is in the job's network, whose links and NICs it shares then, or in
another network of the lab, by the NICs that the servers have there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from rocelab.base.arrays import Ints
from rocelab.base.units import BytesPerSecond, DurationNs, SizeBytes
from rocelab.base.wording import RefusedError
from rocelab.jobs.storage import (
    MAX_STORED,
    STORAGE,
    STRIPES,
    Servers,
    StorageRate,
    Stripes,
    striped,
)
from rocelab.jobs.transport import MAX_DURATION
from rocelab.jobs.workload import Dimension, Sends, Step, StepTiming, Workload
from rocelab.jobs.workloads import WorkloadRate
from rocelab.labfile.base import Name, SpecModel

WRITE, COPY = "checkpoint", "checkpoint copy"


class TrainingCheckpoint(SpecModel):
    """After every so many steps ranks write the parameters and the optimizer's state to storage."""

    every: Annotated[int, Field(ge=1, le=10**6, description="steps from one to the next")]
    storage: Annotated[Servers, Field(description=STORAGE)]
    network: Annotated[
        Name | None,
        Field(
            description="the network of the lab that storage is in, if it is not the job's: the "
            "servers of the job write by their NICs there"
        ),
    ] = None
    size: Annotated[
        SizeBytes | None,
        Field(
            ge=1,
            le=MAX_STORED,
            description="bytes of a whole checkpoint; left out: 2 of each parameter, and "
            "optimizer_bytes",
        ),
    ] = None
    stripes: Stripes = STRIPES
    storage_rate: StorageRate = None
    asynchronous: Annotated[
        bool,
        Field(
            description="training goes on while ranks write from a copy in their server's memory; "
            "the next checkpoint waits for the one before"
        ),
    ] = False
    copy_time: Annotated[
        DurationNs,
        Field(
            ge=0,
            le=MAX_DURATION,
            description="of an asynchronous one: how long training waits for that copy",
        ),
    ] = 0

    @model_validator(mode="after")
    def _a_copy_is_of_an_asynchronous_one(self) -> Self:
        if self.copy_time and not self.asynchronous:
            raise RefusedError(
                "copy_time is of an asynchronous checkpoint",
                "add asynchronous: true, or leave copy_time out",
                keys=("copy_time",),
            )
        return self

    @property
    def endpoints(self) -> tuple[Sequence[str], ...]:
        """Its storage, where that is in the job's network."""
        return (self.storage,) if self.network is None else ()

    @property
    def endpoint_rate(self) -> BytesPerSecond | None:
        """As of a workload."""
        return self.storage_rate if self.network is None else None

    def follows(self, iteration: int, iterations: int) -> bool:
        """Whether a step of so many is followed by a checkpoint: every so many, or the first if the
        run is shorter."""
        if iterations < self.every:
            return iteration == 0
        return (iteration + 1) % self.every == 0


@dataclass(frozen=True, eq=False)
class Writes:
    """What a checkpoint is in a job's network: sends, or in another one the seconds that it
    takes."""

    sends: Sends | None
    elsewhere_s: float = 0.0


def shares(total_bytes: int, writers: Ints, storage: Ints, stripes: int) -> Sends:
    """A checkpoint written by ranks, as much each, the last byte rounded up."""
    return striped(writers, storage, -(-total_bytes // len(writers)), stripes)


def with_checkpoints(workload: Workload, spec: TrainingCheckpoint, writes: Writes) -> Workload:
    """The workload with checkpoints between its iterations."""
    iterations = 1 + max(step.iteration for step in workload.steps)
    steps: list[Step] = []
    number: dict[int, int] = {}
    written: int | None = None
    waited: tuple[int, ...] = ()
    for iteration in range(iterations):
        numbers = [at for at, step in enumerate(workload.steps) if step.iteration == iteration]
        for at in numbers:
            step = workload.steps[at]
            after = tuple(number[before] for before in step.after)
            is_first = all(steps[before].iteration < iteration for before in after)
            number[at] = len(steps)
            steps.append(replace(step, after=(*after, *waited) if is_first else after))
        waited = ()
        if not spec.follows(iteration, iterations):
            continue
        awaited = {before for at in numbers for before in workload.steps[at].after}
        ends = tuple(number[at] for at in numbers if at not in awaited)
        if spec.asynchronous:
            copy_s = spec.copy_time / 1e9
            inside = ((Dimension.CHECKPOINT, copy_s),) if copy_s else ()
            before = ends if written is None else (*ends, written)
            waited = (len(steps),)
            steps.append(Step(COPY, before, copy_s, iteration=iteration, inside=inside))
            ends = waited
        written = len(steps)
        steps.append(_write(spec, writes, ends, iteration))
        if not spec.asynchronous:
            waited = (written,)
    return replace(workload, steps=tuple(steps))


def _write(
    spec: TrainingCheckpoint, writes: Writes, after: tuple[int, ...], iteration: int
) -> Step:
    seconds = writes.elsewhere_s
    return Step(
        WRITE,
        after,
        seconds,
        writes.sends,
        iteration,
        launches=False,
        dimension=None if writes.sends is None else Dimension.CHECKPOINT,
        inside=((Dimension.CHECKPOINT, seconds),) if seconds else (),
        counts=StepTiming.BESIDE if spec.asynchronous else StepTiming.WITHIN,
    )


def checkpoint_figures(
    spec: TrainingCheckpoint, ends_s: Sequence[Mapping[str, float]], last: str
) -> list[WorkloadRate]:
    """The time of each checkpoint, how much longer the run is for one, and the part of a run that
    this is. ends_s: of the steps of each iteration, from its begin; last: the name of the training
    step's own last one.

    The first step goes before every checkpoint, and is what a step takes without.
    """
    alone_s = ends_s[0][last]
    times_s = [ends[WRITE] - ends.get(COPY, ends[last]) for ends in ends_s if WRITE in ends]
    whole_s = sum(
        ends[last] if WRITE not in ends else ends.get(COPY, ends[WRITE]) for ends in ends_s
    )
    exposed_s = max(0.0, whole_s - len(ends_s) * alone_s) / len(times_s)
    share = 100 * exposed_s / (spec.every * alone_s + exposed_s)
    return [
        WorkloadRate("step_alone", "a step without checkpoint", "ns", [alone_s * 1e9]),
        WorkloadRate("checkpoint_time", "checkpoint", "ns", [time * 1e9 for time in times_s]),
        WorkloadRate("checkpoint_exposed", "of it exposed", "ns", [exposed_s * 1e9]),
        WorkloadRate("checkpoint_share", "of the run", "%", [share]),
    ]


def ranks_that_write(grid: Ints, *, replicated: bool) -> Ints:
    """All ranks, each its share; or where all replicas have the same, those of the first. grid: by
    data, stage, context and tensor."""
    ranks = grid[0, :, 0] if replicated else grid
    return np.sort(ranks.reshape(-1))
