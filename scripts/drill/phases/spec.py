"""What a person writes to describe a drill of jobs: phases on one lab, each a job and what it is
expected to come to.

In: a drill file with the key `phases`. Out: a validated `JobDrillSpec`, times in ns of the modelled
network and sizes in bytes.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from labs.spec.model import MAX_SEED, Name, SpecModel
from labs.spec.wording import RefusedError, listed
from labs.units import DURATION
from scripts.drill.expectspec import JobExpectSpec
from scripts.drill.phases.fairness import WINDOW_NS
from traffic.collectives import Pattern
from traffic.job import DCQCN_OFF, JobSpec


class ModelSpec(SpecModel):
    """Lay the numerical model of DCQCN beside what the lab measured."""

    round_trip: Annotated[
        str,
        Field(
            min_length=1,
            max_length=64,
            description="an earlier phase, without congestion: its median round trip is how late "
            "the model's senders hear of a mark",
        ),
    ]
    seeds: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MAX_SEED)], ...],
        Field(strict=False, min_length=1, max_length=20, description="a run of the model for each"),
    ] = (1, 2, 3, 4, 5)


class PhaseSpec(SpecModel):
    """One job of a drill, and what its figures must come to."""

    name: Name
    job: Annotated[JobSpec, Field(description="what `rocelab traffic` runs, key by key")]
    model: Annotated[
        ModelSpec | None, Field(description="for incast with a duration and DCQCN")
    ] = None
    expect: JobExpectSpec = JobExpectSpec()

    @model_validator(mode="after")
    def _something_to_model(self) -> Self:
        if self.model is None:
            return self
        job = self.job
        if (
            job.pattern is not Pattern.INCAST
            or job.duration is None
            or job.transport.dcqcn == DCQCN_OFF
            or job.transport.qps != 1
        ):
            raise RefusedError(
                "the model is of single queue pairs with DCQCN that meet in one port",
                "it needs pattern: incast, a duration, one queue pair per connection and a set of "
                "DCQCN parameters; remove model otherwise",
                keys=("model",),
            )
        least = 3 * WINDOW_NS // 2
        if job.duration - job.starts[-1] < least:
            raise RefusedError(
                f"the model needs {DURATION.written(least)} after the last start: shares are fair "
                f"once they have been for {DURATION.written(WINDOW_NS)}",
                "lengthen job.duration, or remove model",
                keys=("model",),
            )
        return self


class JobDrillSpec(SpecModel):
    """A drill of jobs: phases that run one after the other on one lab."""

    name: Name
    title: Annotated[str, Field(max_length=120)] = ""
    description: Annotated[str, Field(max_length=4000)] = ""
    lab: Annotated[str, Field(min_length=1, description="a lab of the catalog, or a file's path")]
    dilation: Annotated[
        float | None,
        Field(
            ge=1,
            le=10**9,
            description="instead of the lab's own: jobs on many NICs at once need a slower clock",
        ),
    ] = None
    phases: Annotated[tuple[PhaseSpec, ...], Field(strict=False, max_length=32)]

    @field_validator("phases")
    @classmethod
    def _told_apart(cls, phases: tuple[PhaseSpec, ...]) -> tuple[PhaseSpec, ...]:
        if not phases:
            raise RefusedError("a drill of jobs needs a phase", "list one: a name and a job")
        names = [phase.name for phase in phases]
        for place, phase in enumerate(phases):
            if phase.name in names[:place]:
                raise RefusedError(f"two phases are called {phase.name}", "name them apart")
            if phase.model is not None and phase.model.round_trip not in names[:place]:
                earlier = listed(names[:place]) if place else "there is none"
                raise RefusedError(
                    f"the model of phase {phase.name} takes its round trip from "
                    f"{phase.model.round_trip}, which is no earlier phase",
                    f"earlier phases: {earlier}",
                )
        return phases
