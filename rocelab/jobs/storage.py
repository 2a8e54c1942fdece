"""Jobs between ranks and storage servers: what all of them have, and who sends what to whom.

A `StorageSpec` names its storage servers; their NICs are ranks of the job too, behind those that
write or read. Every rank divides its bytes over some of them in turn, as a parallel file system
stripes a file over its servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Self

import numpy as np
from pydantic import Field

from rocelab.base import quantities
from rocelab.base.arrays import Ints
from rocelab.base.errors import InputError
from rocelab.base.units import BANDWIDTH, BytesPerSecond, SizeBytes
from rocelab.jobs.workload import Sends, Step, StepTiming
from rocelab.jobs.workloads import JobPlace, WorkloadRate, WorkloadSpec
from rocelab.labfile.base import SECOND, Name

MAX_RANKS = 2**17
MAX_STORED = 10**15
LONGEST_INTERVAL = 7 * 24 * 3600 * SECOND
STRIPES = 8

Stripes = Annotated[
    int,
    Field(
        ge=1,
        le=4096,
        description="storage NICs that the bytes of a rank are divided over, in turn from rank to "
        "rank; all where there are fewer",
    ),
]
Servers = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=64)], ...],
    Field(strict=False, min_length=1, max_length=4096),
]
STORAGE = (
    "names or patterns, such as sto*, of storage servers, of their NICs (sto1:2), or of switches "
    "that they are wired to"
)
StorageRate = Annotated[
    BytesPerSecond | None,
    Field(
        ge=10**6,
        description="what all storage servers together write or read in a second, each NIC as "
        "much; left out: what their NICs carry",
    ),
]


class StorageSpec(WorkloadSpec):
    """Ranks that write to storage servers or read from them."""

    peers = STRIPES

    ranks: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_RANKS,
            description="NICs that write or read; left out: those of `of`, of the placement, or "
            "all that other jobs leave",
        ),
    ] = None
    of: Annotated[
        Name | None,
        Field(
            description="the job whose ranks write or read, on their NICs; left out: NICs that no "
            "other job has"
        ),
    ] = None
    size: Annotated[SizeBytes, Field(ge=1, le=MAX_STORED, description="bytes of a rank")]
    storage: Annotated[Servers, Field(description=STORAGE)]
    stripes: Stripes = STRIPES
    storage_rate: StorageRate = None

    @property
    def beside(self) -> str | None:
        return self.of

    @property
    def endpoints(self) -> tuple[tuple[str, ...], ...]:
        return (self.storage,)

    @property
    def endpoint_rate(self) -> int | None:
        return self.storage_rate

    def placed(self, ranks: int) -> Self:
        return self.model_copy(update={"ranks": ranks})

    def moved(self, seconds: Iterable[float]) -> WorkloadRate:
        """What storage wrote or read in a second, of times in which every rank moved its bytes."""
        whole = (self.ranks or 0) * self.size
        rates = [whole / time_s / 1e9 for time_s in seconds]
        return WorkloadRate("storage_rate", "storage", "GB/s", rates)

    def basis(self, seed: int = 1) -> tuple[str, ...]:
        return storage_basis(self.stripes, self.storage_rate)


def storage_basis(stripes: int, rate_bps: int | None) -> tuple[str, ...]:
    """What times of storage rest on. rate_bps: bytes per second of all storage servers."""
    pace = (
        "storage servers write and read as fast as their NICs carry"
        if rate_bps is None
        else f"storage servers together move {BANDWIDTH.written(rate_bps)} each way, each NIC as "
        "much"
    )
    return (
        f"assumed: the bytes of a rank are divided over {stripes} storage NICs, or all of fewer, "
        "in turn from rank to rank: no storage NIC has two parts more than another",
        f"assumed: {pace}; disks, metadata, copies and erasure codes take no time",
    )


def striped(ranks: Ints, storage: Ints, size_bytes: int, stripes: int) -> Sends:
    """`size_bytes` from each of some ranks to `stripes` of the storage ranks, or to all of them,
    each rank beginning where the one before ended. Parts of 0 bytes are left out."""
    parts = min(stripes, len(storage), size_bytes)
    part = np.tile(np.arange(parts), len(ranks))
    size, longer = divmod(size_bytes, parts)
    return Sends(
        np.repeat(ranks, parts),
        storage[np.arange(len(part)) % len(storage)],
        (size + (part < longer)).astype(np.int64),
    )


def storage_step(name: str, after: tuple[int, ...], sends: Sends, iteration: int) -> Step:
    """A step of hosts, which no GPU launches."""
    return Step(name, after, sends=sends, iteration=iteration, launches=False)


def due_step(after: tuple[int, ...], every_ns: int, iteration: int) -> Step:
    """The wait for the moment of an iteration, after that of the one before."""
    return Step("due", after, every_ns / 1e9, iteration=iteration, counts=StepTiming.BEFORE)


def turned(sends: Sends) -> Sends:
    """The same bytes the other way."""
    return Sends(sends.destination, sends.source, sends.size_bytes)


def busiest_s(sends: Sends, place: JobPlace) -> float:
    """Seconds that a NIC needs at least for the payload that it sends or gets, of the NIC that
    needs longest."""
    ends = (sends.source, sends.destination)
    return max(
        float((np.bincount(end, sends.size_bytes, len(place.nic_bps)) * 8 / place.nic_bps).max())
        for end in ends
    )


def check_interval(job: str, what: str, least_s: float, every_ns: int) -> None:
    """Raise InputError for work of a job that takes longer than its interval in any network."""
    if least_s * 1e9 > every_ns:
        raise InputError(
            f"job {job}: {what} takes {quantities.duration(least_s * 1e9)} at least, at the rates "
            f"of NICs and storage, and one begins every {quantities.duration(every_ns)}",
            "it would never catch up: raise every, or storage_rate, or take more storage servers",
        )
