"""What a person writes to describe a drill: lab, traffic, faults, measurement, expectations.

In: a YAML file. Out: a validated `DrillSpec`, or a `JobDrillSpec` where the file has phases; times
in ns and sizes in bytes. Nothing is derived here that needs the lab.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from rocelab.drills.phases.spec import JobDrillSpec
from rocelab.errors import InputError, Problem, SpecError
from rocelab.faults.spec import MAX_DURATION, FaultSpec, FlappingSpec
from rocelab.jobs.job import JobSpec
from rocelab.jobs.spec import find_jobs
from rocelab.measure.health.objectives import HealthSpec
from rocelab.results.convergence import Method
from rocelab.results.expectspec import ExpectSpec
from rocelab.spec.base import MS, SECOND, Name, SpecModel
from rocelab.spec.catalog import tree_of
from rocelab.spec.load import validate
from rocelab.spec.model import SeedPlan
from rocelab.spec.reference import named_by
from rocelab.spec.source import Data, Source, read_source
from rocelab.units import DurationNs, SizeBytes, format_duration
from rocelab.wording import KeyPath, RefusedError, dotted

HASHING_NS = SECOND
"""How long undisturbed traffic runs under each seed plan: flows hash alike from the start."""


class TrafficSpec(SpecModel):
    """RoCEv2 flows at a constant rate, from and to servers of the lab."""

    pattern: Annotated[
        Literal["permutation"],
        Field(description="each server sends to one of another rack, and receives from one"),
    ] = "permutation"
    flows: Annotated[int, Field(ge=1, le=4096)] = 20
    rate_pps: Annotated[int, Field(ge=1, le=100_000, description="packets/s of each flow")] = 1000
    payload: Annotated[SizeBytes, Field(ge=32, le=4096, description="RoCE payload of a packet")] = (
        256
    )
    warmup: Annotated[
        DurationNs, Field(ge=0, le=60 * SECOND, description="traffic before time 0, not counted")
    ] = SECOND
    duration: Annotated[
        DurationNs, Field(ge=100 * MS, le=MAX_DURATION, description="counted traffic, from time 0")
    ] = 6 * SECOND
    seed: Annotated[
        int, Field(ge=0, le=2**32 - 1, description="draws the pairs and source ports")
    ] = 1


class MeasureSpec(SpecModel):
    """How convergence is measured; reported with every figure."""

    sampling_interval: Annotated[
        DurationNs,
        Field(
            ge=MS,
            le=10 * SECOND,
            description="Packet Sampling Interval of the rate-derived method (RFC 6412 3.7.4)",
        ),
    ] = 10 * MS
    sustained: Annotated[
        DurationNs,
        Field(
            ge=MS,
            le=60 * SECOND,
            description="Sustained Convergence Validation Time (RFC 6412 3.7.5)",
        ),
    ] = 500 * MS
    event_window: Annotated[
        DurationNs,
        Field(
            gt=0,
            le=MAX_DURATION,
            description="losses this long after an event, at most until the next one, are held "
            "against it; others are reported apart",
        ),
    ] = 10 * SECOND

    stages: Annotated[
        bool,
        Field(
            description="trace every daemon, to say where each event's time went, switch by switch"
        ),
    ] = False

    @property
    def method(self) -> Method:
        """The part of it that the mathematics takes."""
        return Method(self.sampling_interval, self.sustained)


class DrillSpec(SpecModel):
    """A drill of faults: what runs where, what breaks when, what is measured and expected."""

    name: Name
    title: Annotated[str, Field(max_length=120)] = ""
    description: Annotated[str, Field(max_length=4000)] = ""
    lab: Annotated[str, Field(min_length=1, description="a lab by its name, or a file's path")]
    traffic: TrafficSpec = TrafficSpec()
    faults: Annotated[tuple[FaultSpec, ...], Field(strict=False, max_length=64)]
    compare_hashing: Annotated[
        tuple[Annotated[SeedPlan, Field(strict=False)], ...],
        Field(
            strict=False,
            description="seed plans under which the traffic also runs, undisturbed; faults run "
            "under the lab's own",
        ),
    ] = ()
    measure: MeasureSpec = MeasureSpec()
    health: Annotated[
        HealthSpec | None,
        Field(description="watch the lab's SLIs meanwhile, against these objectives"),
    ] = None
    expect: ExpectSpec = ExpectSpec()

    @field_validator("faults")
    @classmethod
    def _something_breaks(cls, faults: tuple[FaultSpec, ...]) -> tuple[FaultSpec, ...]:
        if not faults:
            raise RefusedError("a drill needs a fault", "the result's time starts at the first one")
        return faults

    @field_validator("compare_hashing")
    @classmethod
    def _each_once(cls, plans: tuple[SeedPlan, ...]) -> tuple[SeedPlan, ...]:
        if len(set(plans)) < len(plans):
            raise RefusedError("a seed plan stands here twice", "name each once")
        return plans

    @model_validator(mode="after")
    def _faults_fit_the_traffic(self) -> Self:
        sustained = self.measure.sustained
        for fault in self.faults:
            if fault.at == 0:
                raise RefusedError(
                    "a fault of a drill needs a time",
                    "give it `at`, after time 0: the traffic must be whole before it",
                    keys=("faults",),
                )
            if self.traffic.duration - _last_change(fault) < sustained:
                raise RefusedError(
                    f"the fault at {format_duration(fault.at)} leaves less than measure.sustained "
                    f"({format_duration(sustained)}) between its last change and the end of the "
                    "traffic: recovery could not be told",
                    "lengthen traffic.duration, or let the fault be earlier or shorter",
                    keys=("faults",),
                )
        return self

    @model_validator(mode="after")
    def _a_sample_holds_packets(self) -> Self:
        interval = self.measure.sampling_interval
        if interval * self.traffic.rate_pps < 5 * SECOND:
            raise RefusedError(
                f"a sampling interval of {format_duration(interval)} holds fewer than 5 packets of "
                f"a flow at {self.traffic.rate_pps} packets/s",
                f"make measure.sampling_interval at least "
                f"{format_duration(5 * SECOND / self.traffic.rate_pps)}",
                keys=["measure", "traffic"],
            )
        if interval > self.traffic.duration:
            raise RefusedError(
                f"a sampling interval of {format_duration(interval)} is longer than the counted "
                f"traffic, {format_duration(self.traffic.duration)}",
                "shorten measure.sampling_interval or lengthen traffic.duration",
                keys=["measure", "traffic"],
            )
        return self


def _last_change(fault: FaultSpec) -> int:
    """When a fault changes the lab for the last time, ns after time 0; of a campaign, the first:
    what it draws needs a lab."""
    if isinstance(fault, FlappingSpec):
        return fault.at + fault.count * fault.period
    return fault.at + (fault.lasts or 0)


def load_drill(path: Path) -> DrillSpec | JobDrillSpec:
    """The drill that the file describes: one of jobs where it has the key `phases`, else one of
    faults. Jobs that it names are read from their files.

    Raises SpecError with everything wrong in it, or in the file of a job.
    """
    source = read_source(path)
    if "phases" in source.data:
        return validate(_with_jobs(source, path), JobDrillSpec)
    return validate(source, DrillSpec)


def named_jobs(drill: Mapping[str, Data]) -> Iterator[tuple[KeyPath, str]]:
    """The names or paths of jobs in the keys and values of a drill's file, and where they stand."""
    phases = drill.get("phases")
    for phase_number, phase in enumerate(phases if isinstance(phases, list) else []):
        jobs = phase.get("jobs") if isinstance(phase, dict) else None
        for number, job in enumerate(jobs if isinstance(jobs, list) else []):
            if isinstance(job, str):
                yield ("phases", phase_number, "jobs", number), job


def _with_jobs(source: Source, path: Path) -> Source:
    """The drill with the keys of every job that it names. Raises SpecError."""
    data: Any = deepcopy(source.data)
    for place, text in named_jobs(source.data):
        try:
            file = find_jobs(text, tree_of(path), path.parent)
        except InputError as error:
            problem = Problem(
                source.file, source.line(place), dotted(place), error.message, error.hint
            )
            raise SpecError([problem]) from None
        with named_by(path, file):
            job = read_source(file)
            validate(job, JobSpec)
        _, phase, _, number = place
        data["phases"][phase]["jobs"][number] = job.data
    return replace(source, data=data)
