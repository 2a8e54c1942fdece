"""A drill as a user writes it: a lab, and phases that run on it one after the other, each with its
traffic, faults and expectations.

Reads a YAML file into a validated `DrillSpec`, with times in ns and sizes in bytes. Nothing here
needs the lab.

A phase sends probes (`traffic`) or runs jobs (`jobs`). For probes every time is in the lab's clock;
for jobs times are those of the modelled network, except for `faults`, whose times are always in the
lab's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from rocelab.base import quantities
from rocelab.base.errors import InputError, Problem, SpecError
from rocelab.base.units import DURATION, DurationNs, SizeBytes
from rocelab.base.wording import KeyPath, RefusedError, dotted, listed
from rocelab.drills.program_spec import ProgramTrafficSpec
from rocelab.faults.base import MAX_DURATION
from rocelab.faults.fault_spec import FaultSpec
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import SimulatedJob, find_jobs, load_jobs, named_in
from rocelab.jobs.transport import DCQCN_OFF
from rocelab.labfile.base import MS, SECOND, Name, SpecModel, short_form
from rocelab.labfile.catalog import tree_of
from rocelab.labfile.load import validate
from rocelab.labfile.model import MAX_SEED, SeedPlan
from rocelab.labfile.reference import named_by
from rocelab.labfile.schemes.scheme_spec import SCHEMES, SchemeSpec
from rocelab.labfile.source import Data, YamlSource, read_source
from rocelab.observe.health.health_spec import HealthSpec
from rocelab.results.convergence import MeasurementMethod
from rocelab.results.expectation_spec import ExpectSpec
from rocelab.results.kpi import JOINED, PhaseKind
from rocelab.results.kpis import KPIS
from rocelab.results.shares import WINDOW_NS

HASHING_NS = SECOND
"""How long undisturbed traffic runs under each seed plan: the hashing does not change over time."""


_JOB_FILE = {"type": "string", "description": "a job's file, by its name or path"}


class TrafficSpec(SpecModel):
    """Probes: RoCEv2 flows at a constant rate, from and to servers of the lab."""

    pattern: Annotated[
        Literal["permutation"],
        Field(description="each server sends to one of another rack, and receives from one"),
    ] = "permutation"
    network: Annotated[
        Name | None,
        Field(description="of a lab with several networks, whose NICs send; the first if left out"),
    ] = None
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
    def method(self) -> MeasurementMethod:
        """The part of it for the computation."""
        return MeasurementMethod(self.sampling_interval, self.sustained)


class ModelSpec(SpecModel):
    """Compare the lab's measurement with the numerical model of DCQCN."""

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


OF_PROBES = ("traffic", "crossing", "compare_hashing")
OF_JOBS = ("links_down", "model")
"""Keys of a phase that need jobs."""


def _kpis(kind: PhaseKind) -> list[str]:
    return [kpi.name for kpi in KPIS.values() if kpi.is_of(kind)]


def _kind_of_traffic(traffic: object) -> str:
    is_command = isinstance(traffic, ProgramTrafficSpec) or (
        isinstance(traffic, Mapping) and "command" in traffic
    )
    return "programs" if is_command else "probes"


def _kind_of_job(job: object) -> str:
    keys = job if isinstance(job, Mapping) else ()
    return "collective" if isinstance(job, JobSpec) or "pattern" in keys else "workload"


class PhaseBody(SpecModel):
    """Traffic, the faults during it, and the expectations of its figures."""

    scheme: Annotated[
        SchemeSpec | None,
        Field(description="instead of the lab's own, for this phase"),
        short_form({"enum": list(SCHEMES)}),
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
            description="links without carrier throughout a phase of jobs, such as rtsw1:ctsw2",
        ),
    ] = ()
    traffic: Annotated[
        Annotated[
            Annotated[TrafficSpec, Tag("probes")] | Annotated[ProgramTrafficSpec, Tag("programs")],
            Discriminator(_kind_of_traffic),
        ]
        | None,
        Field(
            description="probes, in the lab's clock, which a phase sends that lists no jobs; or, "
            "with `command`, programs"
        ),
    ] = None
    crossing: Annotated[
        int,
        Field(
            ge=0,
            le=4096,
            description="of the flows, how many at least cross a link that a fault of the phase "
            "breaks: others take the places of flows that do not",
        ),
    ] = 0
    jobs: Annotated[
        tuple[
            Annotated[
                Annotated[JobSpec, Tag("collective")] | Annotated[SimulatedJob, Tag("workload")],
                Discriminator(_kind_of_job),
                short_form(_JOB_FILE),
            ],
            ...,
        ],
        Field(
            strict=False,
            max_length=16,
            description="each what `rocelab traffic` runs, key by key, in the modelled network's "
            "clock: a collective or streams, or a job of a file of jobs, with a name and a block; "
            "all begin together",
        ),
    ] = ()
    faults: Annotated[
        tuple[FaultSpec, ...],
        Field(
            strict=False,
            max_length=64,
            description="faults during the phase: `at` and `lasts` are in the lab's clock, from "
            "the "
            "start of the counted probes, or of the jobs",
        ),
    ] = ()
    compare_hashing: Annotated[
        tuple[Annotated[SeedPlan, Field(strict=False)], ...],
        Field(
            strict=False,
            description="seed plans under which the probes also run, undisturbed; faults run "
            "under the phase's own",
        ),
    ] = ()
    measure: MeasureSpec = MeasureSpec()
    health: Annotated[
        HealthSpec | None,
        Field(description="watch the lab's SLIs during the phase, against these objectives"),
    ] = None
    model: Annotated[
        ModelSpec | None, Field(description="for one incast with a duration and DCQCN")
    ] = None
    expect: ExpectSpec = ExpectSpec()

    @property
    def probes(self) -> TrafficSpec | None:
        """The probes of the phase; None if it runs jobs or programs."""
        if self.jobs or isinstance(self.traffic, ProgramTrafficSpec):
            return None
        return self.traffic or TrafficSpec()

    @property
    def programs(self) -> ProgramTrafficSpec | None:
        """The programs of the phase; None if it sends probes or runs jobs."""
        return self.traffic if isinstance(self.traffic, ProgramTrafficSpec) else None

    @field_validator("compare_hashing")
    @classmethod
    def _each_once(cls, plans: tuple[SeedPlan, ...]) -> tuple[SeedPlan, ...]:
        if len(set(plans)) < len(plans):
            raise RefusedError("a seed plan is listed twice", "name each once")
        return plans

    @model_validator(mode="after")
    def _one_kind_of_traffic(self) -> Self:
        of_probes = [key for key in OF_PROBES if getattr(self, key)]
        of_jobs = [key for key in OF_JOBS if getattr(self, key)]
        if self.jobs and of_probes:
            raise RefusedError(
                f"{of_probes[0]} is of probes, and the phase runs jobs",
                "give probes their own phase",
                keys=of_probes[:1],
            )
        if self.programs is not None and (others := self._not_of_programs()):
            raise RefusedError(
                f"{others[0]} has no meaning beside programs",
                "give it a phase of its own",
                keys=others[:1],
            )
        if not self.jobs and of_jobs:
            raise RefusedError(
                f"{of_jobs[0]} is of jobs, and the phase lists none",
                "list a job: a pattern, ranks and a size",
                keys=of_jobs[:1],
            )
        for expectation in self.expect.expectations():
            kpi = KPIS[expectation.kpi]
            if not kpi.is_of(self.sends):
                raise RefusedError(
                    f"{kpi.name} is a figure of {listed(kpi.kinds, 'and')}, and the phase sends "
                    f"{self.sends}",
                    f"figures of {self.sends}: {listed(_kpis(self.sends))}",
                    keys=("expect",),
                )
        return self

    @property
    def sends(self) -> PhaseKind:
        """What the phase runs."""
        if self.programs is not None:
            return PhaseKind.PROGRAMS
        return PhaseKind.JOBS if self.jobs else PhaseKind.PROBES

    def _not_of_programs(self) -> list[str]:
        keys = [key for key in ("compare_hashing", "crossing") if getattr(self, key)]
        return [*keys, *(["measure"] if self.measure.stages else [])]

    @model_validator(mode="after")
    def _a_diagnosis_of_each_job(self) -> Self:
        if (expected := self.expect.of("diagnosis")) is None:
            return self
        findings = expected.written.split(JOINED)
        sized = [job for job in self.jobs if isinstance(job, JobSpec) and job.size is not None]
        if len(findings) != len(sized):
            raise RefusedError(
                f"diagnosis lists {len(findings)}, and jobs with a size are {len(sized)}",
                "list one for each job with a size, in their order: streams and workloads have no "
                "diagnosis",
                keys=("expect",),
            )
        return self

    @model_validator(mode="after")
    def _faults_fit_the_traffic(self) -> Self:
        probes, sustained = self.probes, self.measure.sustained
        if probes is None:
            return self
        if not self.faults:
            raise RefusedError(
                "a phase of probes needs a fault",
                "the result's time starts at the first one; a phase of jobs lists its jobs",
                keys=("faults",),
            )
        if self.crossing > probes.flows:
            raise RefusedError(
                f"crossing is {self.crossing}, and the phase sends {probes.flows} flows",
                "lower crossing, or raise traffic.flows",
                keys=("crossing",),
            )
        for fault in self.faults:
            if fault.at == 0:
                raise RefusedError(
                    "a fault of a drill needs a time",
                    "give it `at`, after time 0: the probes must be whole before it",
                    keys=("faults",),
                )
            if probes.duration - fault.last_change < sustained:
                raise RefusedError(
                    f"the fault at {quantities.duration(fault.at)} leaves less than "
                    f"measure.sustained ({quantities.duration(sustained)}) between its last change "
                    "and the end of the traffic: recovery cannot be seen",
                    "lengthen traffic.duration, or let the fault be earlier or shorter",
                    keys=("faults",),
                )
        return self

    @model_validator(mode="after")
    def _a_sample_holds_packets(self) -> Self:
        probes, interval = self.probes, self.measure.sampling_interval
        if probes is None:
            return self
        if interval * probes.rate_pps < 5 * SECOND:
            raise RefusedError(
                f"a sampling interval of {quantities.duration(interval)} holds fewer than 5 "
                f"packets of a flow at {probes.rate_pps} packets/s",
                f"make measure.sampling_interval at least "
                f"{quantities.duration(5 * SECOND / probes.rate_pps)}",
                keys=["measure", "traffic"],
            )
        if interval > probes.duration:
            raise RefusedError(
                f"a sampling interval of {quantities.duration(interval)} is longer than the "
                f"counted traffic, {quantities.duration(probes.duration)}",
                "shorten measure.sampling_interval or lengthen traffic.duration",
                keys=["measure", "traffic"],
            )
        return self

    @model_validator(mode="after")
    def _has_model(self) -> Self:
        if self.model is None:
            return self
        job, *others = self.jobs
        if (
            others
            or not isinstance(job, JobSpec)
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


class PhaseSpec(PhaseBody):
    """A named part of a drill."""

    name: Name


class DrillHead(SpecModel):
    """The name of a drill, and its lab."""

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


class DrillSpec(DrillHead):
    """A drill: phases that run one after the other on one lab."""

    phases: Annotated[tuple[PhaseSpec, ...], Field(strict=False, max_length=32)]

    @field_validator("phases")
    @classmethod
    def _names_differ(cls, phases: tuple[PhaseSpec, ...]) -> tuple[PhaseSpec, ...]:
        if not phases:
            raise RefusedError(
                "a drill needs a phase", "list one: a name, and its jobs or its faults"
            )
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


class PhaseDrillSpec(PhaseBody, DrillHead):
    """A drill of one phase, whose keys are next to the drill's own."""

    def with_phases(self) -> DrillSpec:
        """The same drill with one phase of the drill's name."""
        head = {key: getattr(self, key) for key in DrillHead.model_fields}
        keys = {key: getattr(self, key) for key in PhaseBody.model_fields}
        traffic = self.programs or self.probes
        phase = PhaseSpec.model_construct(name=self.name, **{**keys, "traffic": traffic})
        return DrillSpec.model_construct(**head, phases=(phase,))


def load_drill(path: Path) -> DrillSpec:
    """The drill of a file. Without the key `phases` the drill is one phase. Jobs that it names are
    read from their files.

    Raises SpecError with every problem in it, or in the file of a job.
    """
    source = _with_jobs(read_source(path), path)
    if "phases" in source.data:
        return _of_file(validate(source, DrillSpec), path)
    return _of_file(validate(source, PhaseDrillSpec).with_phases(), path)


def _of_file(drill: DrillSpec, path: Path) -> DrillSpec:
    """The drill with its programs in the folder of its file, and the files of its jobs."""
    folder = path.parent.resolve()
    phases = []
    for phase in drill.phases:
        jobs = tuple(
            job if isinstance(job, JobSpec) else named_in(path.resolve(), job) for job in phase.jobs
        )
        update: dict[str, object] = {"jobs": jobs}
        if phase.programs:
            update["traffic"] = phase.programs.in_folder(folder)
        phases.append(phase.model_copy(update=update))
    return drill.model_copy(update={"phases": tuple(phases)})


def named_jobs(drill: Mapping[str, Data]) -> Iterator[tuple[KeyPath, str]]:
    """The names or paths of jobs in the keys and values of a drill's file, and their places."""
    phases = drill.get("phases")
    listed_phases = phases if isinstance(phases, list) else []
    places: list[tuple[KeyPath, object]] = [((), drill)] if "phases" not in drill else []
    places += [(("phases", number), phase) for number, phase in enumerate(listed_phases)]
    for place, phase in places:
        jobs = phase.get("jobs") if isinstance(phase, Mapping) else None
        for number, job in enumerate(jobs if isinstance(jobs, list) else []):
            if isinstance(job, str):
                yield (*place, "jobs", number), job


def _with_jobs(source: YamlSource, path: Path) -> YamlSource:
    """The drill with the keys of every job that it names; a file may have several. Raises
    SpecError."""
    data: Any = deepcopy(source.data)
    # From the last on, so that places before it stay.
    for place, text in reversed(list(named_jobs(source.data))):
        try:
            file = find_jobs(text, tree_of(path), path.parent)
        except InputError as error:
            problem = Problem(
                source.file, source.line(place), dotted(place), error.message, error.hint
            )
            raise SpecError([problem]) from None
        with named_by(path, file):
            job = read_source(file)
            if "jobs" in job.data:
                entries = [
                    job.model_dump(mode="json", exclude_none=True)
                    for job in load_jobs(file.resolve())
                ]
            else:
                validate(job, JobSpec)
                entries = [job.data]
        jobs: Any = data
        *above, number = place
        for key in above:
            jobs = jobs[key]
        assert isinstance(number, int)
        jobs[number : number + 1] = entries
    return replace(source, data=data)
