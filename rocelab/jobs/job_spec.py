"""The jobs of a simulation as a user writes them: each is a collective or a workload.

Reads a YAML file with a list `jobs`, or a lab's job file, into validated `SimulatedJob`s. The
module of each kind makes the job's sends.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import Field, create_model, model_validator

from rocelab.base.errors import InputError
from rocelab.base.kinds import check_keys, in_order
from rocelab.base.units import DurationNs
from rocelab.base.wording import RefusedError, listed
from rocelab.jobs.job import JobSpec, RanksPlaced
from rocelab.jobs.model_files import MODEL_FILES
from rocelab.jobs.placement import Placement
from rocelab.jobs.transport import MAX_DURATION, TransportSpec
from rocelab.jobs.workloads import WORKLOADS, WorkloadSpec
from rocelab.labfile.base import Name, SpecModel
from rocelab.labfile.catalog import JOBS, find
from rocelab.labfile.load import validate
from rocelab.labfile.model import MAX_SEED
from rocelab.labfile.references import with_contents
from rocelab.labfile.servers import HOST_MODELS, HostModelBlock
from rocelab.labfile.source import read_source

KINDS = ("collective", *in_order(WORKLOADS))
IN_COLLECTIVE = ("network", "placement", "seed", "transport", "host_model")
"""Keys that a collective itself has, so that a lab's job file is a valid collective."""


class _Job(SpecModel):
    """A job: where it runs, how its NICs send, and exactly one block with its kind and
    parameters."""

    name: Name
    network: Annotated[
        Name | None,
        Field(description="of a lab with several networks, whose NICs send; the first if left out"),
    ] = None
    placement: RanksPlaced = Placement.CONTIGUOUS
    seed: Annotated[
        int,
        Field(ge=0, le=MAX_SEED, description="draws random placements, source ports and flows"),
    ] = 1
    transport: Annotated[TransportSpec, Field(description="how the NICs send")] = TransportSpec()
    start: Annotated[DurationNs, Field(ge=0, le=MAX_DURATION, description="when it begins")] = 0
    iterations: Annotated[
        int,
        Field(
            ge=1,
            le=10_000,
            description="repetitions; for a collective its own, where it says so",
        ),
    ] = 1
    host_model: Annotated[
        HostModelBlock | None,
        Field(description="the type of its servers; left out: the lab's, or hosts take no time"),
    ] = None
    collective: Annotated[
        JobSpec | None, Field(description="a collective, with the keys of a lab's job")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _usable(cls, block: object) -> object:
        check_keys(WORKLOADS, block, cls)
        return block

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        said = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(said) != 1:
            got = listed(said, "and") if said else "none"
            raise RefusedError(
                f"expected exactly one of {listed(KINDS)}, got {got}",
                "a job has one block; write another job for another block",
                keys=(*said[1:], "name"),
            )
        return self

    @model_validator(mode="after")
    def _keys_agree(self) -> Self:
        if self.collective is None:
            return self
        if self.collective.size is None:
            raise RefusedError(
                "a collective with a duration sends streams, which never complete",
                "give it a size: a simulation finds how long that takes",
                keys=("collective",),
            )
        for key in IN_COLLECTIVE:
            outer, inner = getattr(self, key), getattr(self.collective, key)
            if outer not in (inner, type(self).model_fields[key].default):
                raise RefusedError(
                    f"{key} is said here and, otherwise, in collective",
                    "a collective has this key itself: write it there",
                    keys=(key,),
                )
            self._hold(key, inner)
        if "iterations" in self.collective.model_fields_set - self.model_fields_set:
            self._hold("iterations", self.collective.iterations)
        return self

    @model_validator(mode="after")
    def _flows_begin_once(self) -> Self:
        if self.is_open_loop and self.iterations > 1:
            raise RefusedError(
                "flows that begin at given times are not repeated",
                "leave iterations out",
                keys=("iterations", self.kind),
            )
        if self.is_open_loop and self.transport.qps > 1:
            raise RefusedError(
                f"each flow has a queue pair of its own, not {self.transport.qps}",
                "leave qps out",
                keys=("transport", self.kind),
            )
        return self

    def _hold(self, key: str, value: object) -> None:
        # The model is frozen, but the validator still completes it.
        object.__setattr__(self, key, value)

    @model_validator(mode="after")
    def _a_place_for_each_rank(self) -> Self:
        ranks = self.ranks
        if ranks is None or isinstance(self.placement, Placement):
            return self
        if len(self.placement) != ranks:
            raise RefusedError(
                f"the placement lists {len(self.placement)} NICs for {ranks} ranks",
                "list one per rank",
                keys=("placement",),
            )
        return self

    @property
    def title(self) -> str:
        """What it is called in one word or two."""
        return f"{self.kind} {self.name}"

    @property
    def warmup_iterations(self) -> int:
        """Repetitions that are not measured."""
        return 0

    @property
    def compute(self) -> int:
        """Pause of every rank between iterations; a workload computes in its steps."""
        return 0

    @property
    def kind(self) -> str:
        """Which kind it is."""
        return next(kind for kind in KINDS if getattr(self, kind) is not None)

    @property
    def workload(self) -> WorkloadSpec | None:
        """Its block, if that is a workload."""
        block = getattr(self, self.kind)
        return block if isinstance(block, WorkloadSpec) else None

    @property
    def ranks(self) -> int | None:
        """How many ranks it has; None where files say it, or the NICs that it lists."""
        block = self.collective or self.workload
        return None if block is None else block.ranks

    @property
    def is_open_loop(self) -> bool:
        """Whether it is flows that begin at given times, whatever the network does."""
        return self.workload is not None and self.workload.is_open_loop


def _with_workloads() -> type[_Job]:
    """A job with a block for each registered workload."""
    blocks: dict[str, Any] = {}
    for name, workload in in_order(WORKLOADS).items():
        description = workload.title or f"of {WORKLOADS.origin(name)}"
        blocks[name] = (workload | None, Field(None, description=description))
    return create_model(
        "SimulatedJob", __base__=_Job, __doc__=_Job.__doc__, __module__=__name__, **blocks
    )


if TYPE_CHECKING:
    SimulatedJob = _Job
else:
    SimulatedJob = _with_workloads()


LabJob = JobSpec | SimulatedJob
"""A job of a lab: a collective or streams by itself, or one of a file of jobs."""


class JobsSpec(SpecModel):
    """The content of a file of jobs."""

    jobs: Annotated[
        tuple[SimulatedJob, ...],
        Field(strict=False, min_length=1, description="jobs that share the network"),
    ]

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        twice = [name for name, n in Counter(job.name for job in self.jobs).items() if n > 1]
        if twice:
            raise RefusedError(
                f"several jobs are called {listed(twice, 'and')}",
                "give each job its own name",
                keys=("jobs",),
            )
        return self


def find_jobs(text: str, tree: Path = Path(), folder: Path = Path()) -> Path:
    """The file of the jobs that a user calls `text`, as `rocelab.labfile.catalog.find` has it."""
    return find(text, JOBS, tree, folder)


def collective_job(job: JobSpec) -> SimulatedJob:
    """A lab's job alone, named after its pattern.

    Raises InputError for a job with a duration.
    """
    if job.size is None:
        raise InputError(
            "a job with a duration sends streams, which never complete",
            hint="give it a size: a simulation finds how long that takes",
        )
    return SimulatedJob(name=str(job.pattern), collective=job)


def load_jobs(file: str | Path) -> tuple[SimulatedJob, ...]:
    """The jobs that a YAML file lists; traces and flows from its folder. Text is a name or a path.
    Raises SpecError with every problem of a stage, InputError if there is no such file.

    A lab's job file, which has `pattern` at its top, is one job.
    """
    path = find_jobs(file) if isinstance(file, str) else file
    source = with_contents(read_source(path), path, (*HOST_MODELS, *MODEL_FILES))
    if isinstance(source.data, dict) and "pattern" in source.data:
        return (collective_job(validate(source, JobSpec)),)
    jobs = validate(source, JobsSpec).jobs
    return tuple(named_in(path, job) for job in jobs)


def named_in(path: Path, job: SimulatedJob) -> SimulatedJob:
    """A job of the file `path` with the path of its own file from the current folder. Raises
    SpecError if it names flows elsewhere that are wrong."""
    if job.workload is None:
        return job
    return job.model_copy(update={job.kind: job.workload.within(path)})
