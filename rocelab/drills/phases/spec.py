"""What a person writes to describe a drill of jobs: phases on one lab, each of jobs that run at the
same time and what they are expected to come to.

In: a drill file with the key `phases`. Out: a validated `JobDrillSpec`, times in ns of the modelled
network and sizes in bytes.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from rocelab.faults.spec import FaultSpec
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.job import JobSpec
from rocelab.jobs.transport import DCQCN_OFF
from rocelab.results.expectspec import JobExpectSpec
from rocelab.results.shares import WINDOW_NS
from rocelab.spec.base import Name, SpecModel
from rocelab.spec.model import MAX_SEED, SeedPlan
from rocelab.spec.schemes import SchemeSpec
from rocelab.units import DURATION
from rocelab.wording import RefusedError, listed


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
    """Jobs that run at the same time, and what their figures must come to."""

    name: Name
    scheme: Annotated[
        SchemeSpec | None, Field(description="instead of the lab's own, for this phase")
    ] = None
    seed: Annotated[
        Annotated[SeedPlan, Field(strict=False)] | Annotated[int, Field(ge=0, le=MAX_SEED)] | None,
        Field(description="a plan of hash seeds instead of the lab's own, for this phase"),
    ] = None
    links_down: Annotated[
        tuple[str, ...],
        Field(
            strict=False,
            max_length=64,
            description="links without carrier throughout the phase, such as rtsw1:ctsw2",
        ),
    ] = ()
    jobs: Annotated[
        tuple[JobSpec, ...],
        Field(
            strict=False,
            max_length=16,
            description="each what `rocelab traffic` runs, key by key; all begin together",
        ),
    ]
    faults: Annotated[
        tuple[FaultSpec, ...],
        Field(
            strict=False,
            max_length=64,
            description="what breaks while the jobs run: `at` and `lasts` are in the lab's clock, "
            "from the jobs' start",
        ),
    ] = ()
    model: Annotated[
        ModelSpec | None, Field(description="for one incast with a duration and DCQCN")
    ] = None
    expect: JobExpectSpec = JobExpectSpec()

    @field_validator("jobs")
    @classmethod
    def _a_job(cls, jobs: tuple[JobSpec, ...]) -> tuple[JobSpec, ...]:
        if not jobs:
            raise RefusedError("a phase needs a job", "list one: a pattern, ranks and a size")
        return jobs

    @model_validator(mode="after")
    def _something_to_model(self) -> Self:
        if self.model is None:
            return self
        job, *others = self.jobs
        if (
            others
            or job.pattern is not Pattern.INCAST
            or job.duration is None
            or job.transport.dcqcn == DCQCN_OFF
            or job.transport.qps != 1
        ):
            raise RefusedError(
                "the model is of single queue pairs with DCQCN that meet in one port",
                "it needs one job, with pattern: incast, a duration, one queue pair per connection "
                "and a set of DCQCN parameters; remove model otherwise",
                keys=("model",),
            )
        least = 3 * WINDOW_NS // 2
        if job.duration - job.starts[-1] < least:
            raise RefusedError(
                f"the model needs {DURATION.written(least)} after the last start: shares are fair "
                f"once they have been for {DURATION.written(WINDOW_NS)}",
                "lengthen the job's duration, or remove model",
                keys=("model",),
            )
        return self


class JobDrillSpec(SpecModel):
    """A drill of jobs: phases that run one after the other on one lab."""

    name: Name
    title: Annotated[str, Field(max_length=120)] = ""
    description: Annotated[str, Field(max_length=4000)] = ""
    lab: Annotated[str, Field(min_length=1, description="a lab by its name, or a file's path")]
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
            raise RefusedError("a drill of jobs needs a phase", "list one: a name and its jobs")
        names = [phase.name for phase in phases]
        for place, phase in enumerate(phases):
            if phase.name in names[:place]:
                raise RefusedError(f"two phases are called {phase.name}", "name them apart")
            alone = [before.name for before in phases[:place] if len(before.jobs) == 1]
            if phase.model is not None and phase.model.round_trip not in alone:
                raise RefusedError(
                    f"the model of phase {phase.name} takes its round trip from "
                    f"{phase.model.round_trip}, which is no earlier phase of one job",
                    f"earlier phases of one job: {listed(alone) if alone else 'there is none'}",
                )
            for expectation in phase.expect.expectations():
                other = expectation.of_phase
                if other is not None and other not in (set(names) - {phase.name}):
                    raise RefusedError(
                        f"phase {phase.name} expects {expectation.kpi} {expectation.written}, and "
                        f"there is no other phase {other}",
                        f"phases: {listed(names)}",
                    )
        return phases
