"""What a pattern of a job says of itself: who sends what to whom, and what its sizes mean.

A pattern is a class of `JobPattern` in a module of its own, registered in the group
`rocelab.jobs.patterns` (`rocelab.jobs.patterns.door`). Labs and simulations ask it. Standard
library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from rocelab.jobs.patterns.mesh import places

LAST = 100

PEERS_IN_FLIGHT = 64
"""How many others a rank sends to at once in an AlltoAll(v), unless a job says it. NCCL works on 8
sends of a channel at once (NCCL_MAX_DEV_WORK_P2P_PER_BATCH, src/include/device.h) and on all of its
channels, of which a power of two serves each peer (ncclTopoComputeP2pChannels, src/graph/paths.cc):
32 channels, four a peer, are 64 peers."""


class Algorithm(StrEnum):
    """How a collective is done."""

    RING = "ring"
    TREE = "tree"
    HIERARCHICAL = "hierarchical"
    NVLS = "nvls"
    """Reduced and copied by the switch of an NVLink domain (NVLink SHARP)."""

    NVLS_TREE = "nvls-tree"
    """So in each domain, and in two trees of domains by each rail."""

    COLLNET = "collnet"
    """Reduced and copied by the network's switches (SHARP), a rail at a time."""

    PAT = "pat"
    """In aggregated trees (Jeaugey 2025, `PAT: a new algorithm for all-gather and reduce-scatter
    operations at scale`), among servers of one rank each."""

    DIRECT = "direct"
    """An AlltoAll(v) in which each rank sends by its own NIC."""

    PXN = "pxn"
    """An AlltoAll(v) in which GPUs relay what others of their server send on their rail."""


IN_NVLINK = frozenset({Algorithm.NVLS, Algorithm.NVLS_TREE})
"""What only an NVLink switch does."""

IN_SWITCH = IN_NVLINK | {Algorithm.COLLNET}
"""What only switches that reduce do: they are simulated, and no lab has one."""

OF_EXCHANGES = frozenset({Algorithm.DIRECT, Algorithm.PXN, Algorithm.HIERARCHICAL})
"""Those of an AlltoAll(v)."""


class Protocol(StrEnum):
    """How NCCL's kernels hand data on."""

    LL = "ll"
    """Four bytes of data and four of a flag: low latency, half of the bandwidth."""

    LL128 = "ll128"
    """120 bytes of data in 128: over NVLink."""

    SIMPLE = "simple"
    """Chunks and a fence each: the whole bandwidth."""


@dataclass(frozen=True, slots=True)
class Send:
    """`size_bytes` (> 0) from rank `source` to rank `destination`."""

    id: int
    """The number of the send in its schedule."""

    source: int
    destination: int
    size_bytes: int
    after: tuple[int, ...]
    """The sends that must finish first. Each either arrives at `source`, which forwards or combines
    its data, or was sent by `source` and finishes when it is acknowledged: the sender knows by
    itself when it may start."""

    lags_ns: tuple[int, ...] = ()
    """How long after the end of each of `after` it may start, as while a GPU computes; empty: at
    once."""
    at_ns: int = 0
    """How long after the iteration's begin it may start."""


@dataclass(frozen=True, slots=True)
class Call:
    """The numbers of a collective: two ranks or more, bytes as the pattern counts them, and what a
    job may say besides (`rocelab.jobs.job.JobSpec`)."""

    ranks: int
    size_bytes: int
    algorithm: Algorithm = Algorithm.RING
    channels: int = 1
    group: int | None = None
    root: int = 0
    seed: int = 0
    in_flight: int = PEERS_IN_FLIGHT
    mesh: bool = False
    """Whether each two ranks of a group have a link of their own."""

    @property
    def orders(self) -> list[list[int]]:
        """The ranks in each channel's order: group by group, each rotated by the channel's
        number, or over links of its own in a mesh."""
        group = self.group or self.ranks
        alone = group == self.ranks
        return [
            [start + place for start in range(0, self.ranks, group) for place in order]
            for order in places(group, self.channels, mesh=self.mesh, alone=alone)
        ]

    @property
    def rings(self) -> list[list[int]]:
        """The ranks along each channel's ring: those of `orders`, with every second group
        backwards, so that data leaves a group at the place at which it enters the next: on one
        rail, where places are rails (but for the way back to the first of an odd number of
        groups)."""
        group = self.group or self.ranks
        return [
            [
                rank
                for start in range(0, self.ranks, group)
                for rank in order[start : start + group][:: -1 if start // group % 2 else 1]
            ]
            for order in self.orders
        ]


class JobPattern:
    """What the ranks of a job do together; sizes mean what they mean in nccl-tests (its
    doc/PERFORMANCE.md). The docstring's first line is what the help says of it."""

    place: ClassVar[int] = LAST
    """Where it stands in lists."""
    algorithms: ClassVar[frozenset[Algorithm]] = frozenset()
    """Those that the key `algorithm` may say; none: there is one way."""
    is_single: ClassVar[bool] = False
    """Whether it is a set of single sends, for studies of congestion, which may also last."""
    is_exchange: ClassVar[bool] = False
    """Whether all ranks send all others: a rank's sends keep their order, and the key `in_flight`
    means something."""
    is_rooted: ClassVar[bool] = False
    """Whether the key `root` means something."""
    is_in_ring_order: ClassVar[bool] = False
    """Whether the key `group` means something."""
    is_divided: ClassVar[bool] = False
    """Whether the size counts a part for every rank, including its own, which is not sent."""

    has_few_peers: ClassVar[bool] = False
    """Whether a rank sends to two others of each channel at most, on average."""

    def sends(self, call: Call) -> Sequence[Send]:
        """Every send of a collective; each waits for earlier ones."""
        raise NotImplementedError

    def count(self, call: Call) -> int:
        """How many sends there are at most, found without making them where they are many."""
        return len(self.sends(call))

    def busbw_factor(self, ranks: int) -> float:
        """busbw / algbw (nccl-tests, doc/PERFORMANCE.md)."""
        return (ranks - 1) / ranks if self.is_divided else 1.0

    def pairs(self, ranks: int, seed: int) -> tuple[tuple[int, int], ...]:
        """(source, destination) of single sends, by source. Raises InputError for a number of ranks
        that does not fit."""
        raise ValueError(f"{type(self).__name__} is no set of single sends")
