"""The engine's input and output: a program of tasks, and its outcome.

A `Program` is a graph of tasks. A task waits for other tasks, then for its own delay, then
transfers bytes over paths that share links with all other transfers under way. Compute is a task
without transfers. This module knows no ranks, collectives or switches.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Bools, Floats, Ints, Longs
from rocelab.routes.arrays.flows import Paths

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rings:
    """Transfers of a ring stand for chunks that circulate, so that the latency of one hop overlaps
    the transfer time of others.

    of_transfer: the ring that each transfer is a hop of, -1 for none, X. share: of the sum of its
    transfers' times, what a chunk takes, C. latency_s: of a chunk on its whole way but
    its last hop, C. meets: whether some hops have more chunks than others, C. A chunk takes its
    share of the sum of the transfers' times, from the task's start, plus the latency; the task's
    own latency begins no sooner.
    """

    of_transfer: Ints
    share: Floats
    latency_s: Floats
    meets: Bools


@dataclass(frozen=True, eq=False)
class Limits:
    """W flows that send no more than a window in a round trip: their bit b leaves a round trip
    after their bit b - window at the earliest, whichever transfers these are of."""

    flow: Ints
    """In ascending order."""

    round_s: Floats
    window_bits: Floats
    """inf: `line_bps` is all that limits it."""

    line_bps: Floats
    """What the flow sends at most while its window is open."""


@dataclass(frozen=True, eq=False)
class Program:
    """T tasks and X transfers.

    A flow is a queue pair: its transfers run one after the other, in the order in which they begin,
    and it counts as one when links are shared.
    """

    after_start: Offsets
    """T + 1. Task t waits for the tasks after[after_start[t]:after_start[t + 1]]."""

    after: Ints
    """All of them have lower numbers than the task that waits."""

    delay_s: Floats
    """T. From the end of the tasks that it waits for until its transfers begin."""

    latency_s: Floats
    """T. From its last byte sent until the task is over."""

    first_transfer: Offsets
    """T + 1. The transfers of task t are first_transfer[t] up to first_transfer[t + 1]."""

    flow: Ints
    """X. The flow whose path each transfer takes."""

    size_bits: Floats
    """X, > 0. Bits on the wire."""

    rings: Rings | None = None
    limits: Limits | None = None

    @property
    def tasks(self) -> int:
        return len(self.delay_s)

    @property
    def transfers(self) -> int:
        return len(self.flow)


@dataclass(frozen=True, eq=False)
class Change:
    """The capacities of sends and paths of flows from `time_s` on; None: unchanged."""

    time_s: float
    capacity_bps: Floats | None = None
    paths: Paths | None = None


@dataclass(frozen=True, eq=False)
class Outcome:
    """When each of T tasks and X transfers ended. Times are inf for never."""

    start_s: Floats
    """T. When the transfers of each task began."""

    end_s: Floats
    """T. When each task was over."""

    finish_s: Floats
    """X. When the last byte of each transfer left."""

    sent_bits: Floats
    """What each send carried."""

    rate_times_s: Floats
    """When the sum of all transfers' rates changed."""

    rate_bps: Floats
    """That sum, from each of these moments on."""

    solves: int
    """How often rates were computed."""

    held: Longs | None = field(default=None, kw_only=True)
    """The flows whose own limit, and no send, held back a transfer when it ended."""
