"""The description of a job by a user: what the ranks do, where they run, how their NICs send.

Validates keys of a drill file or options of a command as a `JobSpec`, with times in ns of the
modelled network and sizes in bytes, and makes its schedule of sends or its continuous streams.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Self

from pydantic import Field, PrivateAttr, Tag, model_validator

from rocelab.base.units import DURATION, SIZE, DurationNs, SizeBytes
from rocelab.base.wording import RefusedError, listed
from rocelab.jobs.collectives import (
    Pattern,
    Schedule,
    kind_of,
    patterns_where,
    point_to_point,
    schedule,
)
from rocelab.jobs.patterns.base import PEERS_IN_FLIGHT, Algorithm, Protocol
from rocelab.jobs.placement import Placement
from rocelab.jobs.transport import MAX_DURATION, MAX_SIZE, TransportSpec
from rocelab.labfile.base import Name, SpecModel
from rocelab.labfile.model import MAX_SEED
from rocelab.labfile.servers import HostModelBlock

RanksPlaced = Annotated[
    Annotated[Placement, Field(strict=False)]
    | Annotated[tuple[str, ...], Field(strict=False), Tag("list")],
    Field(
        description="contiguous: server by server; topology-aware: leaf by leaf, zone by zone; "
        "fragmented: zones and their leaves in turn; random; or a list of server or "
        "server:nic, one per rank"
    ),
]
"""The NIC of each rank of a job."""


class JobSpec(SpecModel):
    """A job: a repeated collective (`size`), or continuous streams (`duration`)."""

    pattern: Annotated[Pattern, Field(strict=False, description="what the ranks do together")]
    algorithm: Annotated[
        Annotated[Algorithm, Field(strict=False)] | None,
        Field(
            description="how it is done; left out: in rings, an alltoall in direct sends; with a "
            "host model as NCCL would do it"
        ),
    ] = None
    protocol: Annotated[
        Annotated[Protocol, Field(strict=False)] | None,
        Field(
            description="NCCL's protocol, with a host model; left out: as NCCL "
            "would take it for a size"
        ),
    ] = None
    ranks: Annotated[int, Field(ge=2, le=2**17, description="ranks, each on a NIC of its own")]
    size: Annotated[
        SizeBytes | None,
        Field(
            ge=1,
            le=MAX_SIZE,
            description="bytes as nccl-tests counts them; for incast, pairs and permutation what "
            "each sender sends",
        ),
    ] = None
    duration: Annotated[
        DurationNs | None,
        Field(
            gt=0,
            le=MAX_DURATION,
            description="instead of size: how long incast, pairs or permutation send on",
        ),
    ] = None
    starts: Annotated[
        tuple[Annotated[DurationNs, Field(ge=0, le=MAX_DURATION)], ...],
        Field(
            strict=False,
            description="with duration: senders in as many equal groups, each begins at its time",
        ),
    ] = (0,)
    iterations: Annotated[int, Field(ge=1, le=10_000, description="measured repetitions")] = 5
    warmup_iterations: Annotated[
        int, Field(ge=0, le=10_000, description="repetitions before, not measured")
    ] = 1
    compute: Annotated[
        DurationNs,
        Field(ge=0, le=MAX_DURATION, description="pause of every rank between iterations"),
    ] = 0
    network: Annotated[
        Name | None,
        Field(description="of a lab with several networks, whose NICs send; the first if left out"),
    ] = None
    placement: RanksPlaced = Placement.CONTIGUOUS
    seed: Annotated[
        int,
        Field(ge=0, le=MAX_SEED, description="draws random placements, permutations and alltoallv"),
    ] = 1
    channels: Annotated[
        int | None,
        Field(
            ge=1,
            le=64,
            description="parts of the buffer that go on independently; left out: 1, or with a host "
            "model one for each NIC of a server",
        ),
    ] = None
    group: Annotated[
        int | None,
        Field(
            ge=1,
            description="ranks per group of a hierarchical allreduce or alltoall, and within which "
            "rings rotate from channel to channel; left out: those on a server, or on a leaf",
        ),
    ] = None
    root: Annotated[int, Field(ge=0, description="the rank of a broadcast or gather")] = 0
    in_flight: Annotated[
        int | None,
        Field(
            ge=1,
            le=2**17,
            description="others that a rank sends to at once in an alltoall or alltoallv: 1 is "
            "rounds, each after the one before; left out: 64, as NCCL's channels have it",
        ),
    ] = None
    transport: Annotated[TransportSpec, Field(description="how the NICs send")] = TransportSpec()
    host_model: Annotated[
        HostModelBlock | None,
        Field(description="the type of its servers; left out: the lab's, or none"),
    ] = None

    _is_on_mesh: bool = PrivateAttr(default=False)

    @property
    def is_on_mesh(self) -> bool:
        """Whether each two ranks of a group have a link of their own, as hosts of a model have."""
        return self._is_on_mesh

    def on_mesh(self) -> Self:
        """The job where they have."""
        job = self.model_copy()
        job._is_on_mesh = True
        return job

    @property
    def title(self) -> str:
        """What it is called in one word."""
        return str(self.pattern)

    @model_validator(mode="after")
    def _size_or_duration(self) -> Self:
        if (self.size is None) == (self.duration is None):
            raise RefusedError(
                "expected size or duration, one of the two",
                "size for collectives, such as 64MB; duration for streams that run on",
                keys=("duration", "size"),
            )
        return self

    @model_validator(mode="after")
    def _keys_that_mean_something(self) -> Self:
        patterns_of: dict[str, Iterable[Pattern]] = {
            "algorithm": patterns_where(lambda kind: bool(kind.algorithms)),
            "protocol": patterns_where(lambda kind: Algorithm.RING in kind.algorithms),
            "duration": patterns_where(lambda kind: kind.is_single),
            "group": patterns_where(lambda kind: kind.is_in_ring_order),
            "in_flight": patterns_where(lambda kind: kind.is_exchange),
            "root": patterns_where(lambda kind: kind.is_rooted),
        }
        for key, patterns in patterns_of.items():
            if self.pattern not in patterns and self._is_set(key):
                raise RefusedError(
                    f"{key} means nothing for {self.pattern}",
                    f"remove it; it is for {listed(sorted(patterns), 'and')}",
                    keys=(key,),
                )
        missing = "duration" if self.duration is None else "size"
        of_duration, of_size = (
            ("starts",),
            ("iterations", "warmup_iterations", "compute", "channels"),
        )
        for key in of_duration if missing == "duration" else of_size:
            if self._is_set(key):
                raise RefusedError(
                    f"{key} goes with {missing}, and this job has none",
                    "remove it: a job repeats a size, or runs for a duration",
                    keys=(key,),
                )
        return self

    @model_validator(mode="after")
    def _an_algorithm_of_the_pattern(self) -> Self:
        algorithms = kind_of(self.pattern).algorithms
        if self.algorithm is not None and algorithms and self.algorithm not in algorithms:
            raise RefusedError(
                f"{self.pattern} has no algorithm {self.algorithm}",
                f"it has {listed(sorted(algorithms), 'and')}",
                keys=("algorithm",),
            )
        return self

    def _is_set(self, key: str) -> bool:
        """Whether a key differs from its default, so that a dump with every default is valid
        input."""
        return bool(getattr(self, key) != type(self).model_fields[key].default)

    @model_validator(mode="after")
    def _ranks_fit_the_pattern(self) -> Self:
        ranks = self.ranks
        if self.root >= ranks:
            raise RefusedError(
                f"there is no rank {self.root}", f"ranks are 0 to {ranks - 1}", keys=("root",)
            )
        if self.pattern is Pattern.PAIRS and ranks % 2:
            raise RefusedError(
                f"{ranks} ranks do not make pairs", "take an even number", keys=("ranks",)
            )
        if self.group is not None and ranks % self.group:
            raise RefusedError(
                f"{ranks} ranks do not divide into groups of {self.group}",
                "give a group size that divides ranks",
                keys=("group", "ranks"),
            )
        if not isinstance(self.placement, Placement) and len(self.placement) != ranks:
            raise RefusedError(
                f"the placement lists {len(self.placement)} NICs for {ranks} ranks",
                "list one per rank",
                keys=("placement", "ranks"),
            )
        return self

    @model_validator(mode="after")
    def _a_size_that_can_be_sent(self) -> Self:
        if self.size is None:
            return self
        parts = self.ranks * (self.channels or 1)
        divided = kind_of(self.pattern).is_divided or self.pattern is Pattern.ALLREDUCE
        if self.size < parts and divided:
            raise RefusedError(
                f"{SIZE.written(self.size)} does not divide into {parts:,} parts",
                "give at least a byte per rank and channel",
                keys=("size", "ranks", "channels"),
            )
        return self

    @model_validator(mode="after")
    def _starts_divide_the_senders(self) -> Self:
        if self.duration is None:
            return self
        if not self.starts or any(later <= earlier for earlier, later in pairwise(self.starts)):
            raise RefusedError(
                "expected one start or more, each later than the one before",
                "such as [0ms, 5ms]: half of the senders begin 5 ms after the others",
                keys=("starts",),
            )
        if self.starts[-1] >= self.duration:
            raise RefusedError(
                f"the start at {DURATION.written(self.starts[-1])} is not before the end at "
                f"{DURATION.written(self.duration)}",
                "lengthen duration",
                keys=("starts", "duration"),
            )
        senders = len(point_to_point(self.pattern, self.ranks, self.seed))
        if senders % len(self.starts):
            raise RefusedError(
                f"{senders} senders do not divide into {len(self.starts)} equal groups",
                "give a number of starts that divides the senders, or other ranks",
                keys=("starts", "ranks"),
            )
        return self


@dataclass(frozen=True, slots=True)
class Stream:
    """Rank `source` sends to rank `destination` from `start_ns` on, until the job's duration."""

    source: int
    destination: int
    start_ns: int


def schedule_of(job: JobSpec, group: int | None = None) -> Schedule:
    """The sends of one iteration of a job with a size.

    `group` is the group size if the job does not set it (`rocelab.jobs.placement.group_size`).
    Raises ValueError for a job of streams, InputError if the group does not divide the ranks.
    """
    if job.size is None:
        raise ValueError("a job with a duration has streams, not a schedule")
    return schedule(
        job.pattern,
        job.ranks,
        job.size,
        algorithm=job.algorithm or Algorithm.RING,
        channels=job.channels or 1,
        group=group if job.group is None else job.group,
        root=job.root,
        seed=job.seed,
        in_flight=job.in_flight or PEERS_IN_FLIGHT,
        mesh=job.is_on_mesh,
    )


def streams_of(job: JobSpec) -> tuple[Stream, ...]:
    """The streams of a job with a duration, by source. Raises ValueError for a job with a size."""
    if job.duration is None:
        raise ValueError("a job with a size has a schedule, not streams")
    senders = point_to_point(job.pattern, job.ranks, job.seed)
    per_start = len(senders) // len(job.starts)
    return tuple(
        Stream(source, destination, job.starts[index // per_start])
        for index, (source, destination) in enumerate(senders)
    )
