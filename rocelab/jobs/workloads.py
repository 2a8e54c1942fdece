"""Kinds of simulated jobs besides collectives: workloads, such as training or flows of a file.

A workload is a class of `WorkloadSpec`, registered in the group `rocelab.jobs.workloads`: its keys
are those of the block of its name in a job (`rocelab.jobs.job_spec`), and it says itself what
engines run. Simulations ask it, and know none by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np

from rocelab.base.arrays import Bools, Floats, Ints
from rocelab.base.doors import Door
from rocelab.base.errors import InputError
from rocelab.base.kinds import LAST
from rocelab.base.progress import ProgressSink
from rocelab.hosts.ranks import RankHosts
from rocelab.jobs.flow_list import FlowList
from rocelab.jobs.served import Served
from rocelab.jobs.workload import Workload
from rocelab.labfile.base import SpecModel


@dataclass(frozen=True, eq=False)
class JobPlace:
    """A job on a network, with R ranks: its own, and behind them those of its endpoints."""

    name: str
    """For messages."""

    servers: Ints
    """R. The number of the server of each rank's NIC."""

    nic_bps: Floats
    """R. The rate of each rank's NIC, summed over its ports."""

    iterations: int = 1
    """How often the job runs."""

    seed: int = 1
    """What the job draws from."""

    hosts: RankHosts | None = None
    """The type of server on its ranks: which of them reach each other without the network, and what
    hosts take. None: hosts take no time, and all ranks send over the network."""

    endpoints: tuple[Ints, ...] = ()
    """The ranks of each group of `WorkloadSpec.endpoints`."""

    elsewhere_s: float = 0.0
    """Seconds that its sends in another network take (`WorkloadSpec.elsewhere`)."""

    @property
    def ranks(self) -> int:
        """R."""
        return len(self.servers)

    @property
    def own(self) -> int:
        """How many ranks are its own."""
        return self.ranks - sum(map(len, self.endpoints))

    @property
    def own_ranks(self) -> Ints:
        """The numbers of its own."""
        return np.arange(self.own, dtype=np.int32)

    @property
    def domains(self) -> Ints:
        """The server of each own rank, or the domain in which its GPU reaches others."""
        if self.hosts is None or self.hosts.local is None:
            return self.servers[: self.own]
        return self.hosts.domain[: self.own]

    def apart(self, size: int) -> Bools:
        """Of each group of `size` consecutive ranks, whether its NICs are on several servers, or in
        several domains that GPUs reach each other in."""
        servers = self.domains.reshape(-1, size)
        apart: Bools = (servers != servers[:, :1]).any(axis=1)
        return apart

    def over_network(self, size: int, nvlink: float) -> Bools | None:
        """Of each group of `size` ranks whether it sends over the network, None if all are on one
        server each. nvlink: what a GPU sends to others of its server, bytes/s. Raises InputError
        where some groups would wait for others whose NVLink is slower than a NIC."""
        apart = self.apart(size)
        if not apart.any():
            return None
        nic = float(self.nic_bps.max()) / 8
        if not apart.all() and nvlink < nic:
            raise InputError(
                f"job {self.name}: {int(apart.sum()):,} of {len(apart):,} tensor parallel groups "
                "are not on one server and would wait for the others, whose nvlink "
                f"({nvlink / 1e9:g} GB/s) is slower than a NIC ({nic / 1e9:g} GB/s): that is not "
                "simulated",
                hint="place each group on one server, or none",
            )
        return apart


def endpoint_ranks(ranks: int, sizes: Sequence[int]) -> tuple[Ints, ...]:
    """The ranks of groups of so many NICs behind a job's own, of all its ranks."""
    if not sizes:
        return ()
    numbers = np.arange(ranks - sum(sizes), ranks, dtype=np.int32)
    return tuple(np.split(numbers, np.cumsum(sizes)[:-1]))


class MemoryPart(NamedTuple):
    """Bytes in the memory of one GPU."""

    name: str
    bytes: float


class WorkloadRate(NamedTuple):
    """A figure of each iteration, as in a report's headlines: its name, its title, its unit."""

    name: str
    title: str
    unit: str
    values: list[float]


class Elsewhere(NamedTuple):
    """A workload in another network of the lab, whose own ranks are all NICs there of servers."""

    network: str
    servers: Ints
    """Each once."""
    workload: Callable[[int], WorkloadSpec]
    """By the NICs of each of these servers."""


class WorkloadSpec(SpecModel):
    """What a job does, before it is placed on a network."""

    title: ClassVar[str | None] = None
    """What it is, among the keys of a job; None: the package that adds it."""
    place: ClassVar[int] = LAST
    """Where it stands in lists."""
    may_send_nothing: ClassVar[bool] = False
    """Whether it has a time also where no rank sends another a byte: it computes."""
    is_open_loop: ClassVar[bool] = False
    """Whether it is flows that begin at given times, whatever the network does."""
    peers: ClassVar[int | None] = None
    """How many others a rank sends to, about, to estimate memory; None: all. Not for flows that are
    listed."""

    if TYPE_CHECKING:

        @property
        def ranks(self) -> int | None:
            """How many ranks it has, as a key or a property; None: as many as `read` says, or else
            NICs that its job lists, or all that the jobs before leave."""

    @property
    def server_ranks(self) -> int:
        """How many consecutive ranks need no network among them where they are on one server."""
        return 1

    @property
    def endpoints(self) -> tuple[Sequence[str], ...]:
        """Groups of servers whose NICs are ranks behind its own, by name or pattern
        (`rocelab.jobs.placement.Nics.of_servers`). Several jobs may have the same."""
        return ()

    @property
    def endpoint_rate(self) -> int | None:
        """What all NICs of its first endpoints together send, and get, in bytes per second, if that
        is less than they can."""
        return None

    @property
    def beside(self) -> str | None:
        """The job on whose NICs its own ranks are; None: on NICs of its own."""
        return None

    def elsewhere(self, servers: Ints) -> Elsewhere | None:
        """What it sends in another network of the lab while nothing else does, None for nothing.
        servers: of each own rank. Raises InputError."""
        return None

    def placed(self, ranks: int) -> Self:
        """The workload of so many own ranks, where it leaves them open."""
        return self

    @property
    def source(self) -> str:
        """The file that it is read from, for messages; empty without."""
        return ""

    @property
    def digested(self) -> tuple[Path, ...]:
        """The files with what it does, other than its keys: a sweep simulates it again where their
        content has changed."""
        return ()

    def within(self, file: Path) -> Self:
        """The workload of a job file, with the paths of its own files from the current folder.
        Raises SpecError for what is wrong in them."""
        return self

    def on_hosts(self, hosts: RankHosts | None) -> Self:
        """The workload on servers of a type: what its GPUs send each other in a server goes as fast
        as there, where it does not say itself."""
        local = None if hosts is None else hosts.local
        if local is None or getattr(self, "nvlink", 1) is not None:
            return self
        return self.model_copy(update={"nvlink": local.bandwidth_bps / 8})

    def read(self, progress: ProgressSink) -> Workload | FlowList | None:
        """What its files say, before it is placed; None: that depends on its place. Raises
        InputError."""
        return None

    def workload(self, place: JobPlace) -> Workload | FlowList:
        """What it does there, for one that `read` does not know. Raises InputError."""
        raise NotImplementedError

    def rates(self, seconds: Sequence[float]) -> list[WorkloadRate]:
        """Its own figures of iterations that took so long."""
        return []

    def latencies(self, ends_s: Sequence[Mapping[str, float]]) -> list[WorkloadRate]:
        """Its own figures of when steps of each iteration were over, by their names, in seconds
        from the iteration's beginning."""
        return []

    def served(self, place: JobPlace, over_s: Floats) -> Served | None:
        """What requests feel, of an open loop that serves some. over_s: when each of its flows is
        over, in seconds from the job's start, inf for never."""
        return None

    def computed_s(self, place: JobPlace) -> float | None:
        """Seconds that a GPU computes in an iteration; None: whatever its steps compute."""
        return None

    def kept_memory(self) -> tuple[MemoryPart, ...]:
        """What it keeps in the memory of the GPU that keeps most."""
        return ()

    def basis(self, seed: int = 1) -> tuple[str, ...]:
        """What its figures rest on, each as "predicted: ..." or "assumed: ...". seed: what the job
        draws from."""
        return ()


def _workload(name: str, value: object) -> type[WorkloadSpec]:
    if not (isinstance(value, type) and issubclass(value, WorkloadSpec)):
        raise TypeError(f"expected a class of {WorkloadSpec.__module__}.{WorkloadSpec.__name__}")
    if not name.isidentifier():
        raise ValueError("expected a name of letters, digits and underscores: it is a key")
    if "ranks" not in value.model_fields and not hasattr(value, "ranks"):
        raise TypeError(f"{value.__name__} lacks ranks")
    if WorkloadSpec.workload is value.workload and WorkloadSpec.read is value.read:
        raise TypeError(f"{value.__name__} lacks workload")
    return value


WORKLOADS: Door[type[WorkloadSpec]] = Door("rocelab.jobs.workloads", "workload", _workload)
