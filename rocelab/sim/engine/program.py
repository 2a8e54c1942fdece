"""The engine's input and output: a program of tasks, and its outcome.

A `Program` is a graph of tasks. A task waits for other tasks, then for its own delay, then
transfers bytes over paths that share links with all other transfers under way. Compute is a task
without transfers. This module knows no ranks, collectives or switches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Floats, Ints
from rocelab.routes.arrays.flows import Paths

Offsets = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rings:
    """Transfers of a ring stand for chunks that circulate, so that the latency of one hop overlaps
    the transfer time of others.

    of_transfer: the ring that each transfer is a hop of, -1 for none, X. share: 1 / (transfers of
    the ring x chunks on each hop at once). latency_s: of a chunk on its whole way but
    its last hop, C. A chunk takes its share of the sum of the transfers' times, from the task's
    start, plus the latency; the task's own latency begins no sooner.
    """

    of_transfer: Ints
    share: Floats
    latency_s: Floats


@dataclass(frozen=True, eq=False)
class Program:
    """T tasks and X transfers.

    after: the tasks that task t waits for are after[after_start[t]:after_start[t + 1]], all with
    lower numbers. delay_s: from their end until its transfers begin, T. latency_s: from its last
    byte sent until the task is over, T. The transfers of task t are first_transfer[t] up to
    first_transfer[t + 1]; flow: the flow whose path each takes, X; size_bits: bits of each on the
    wire, X, > 0. A flow is a queue pair: its transfers run one after the other, in the order in
    which they begin, and it counts as one when links are shared.
    """

    after_start: Offsets
    after: Ints
    delay_s: Floats
    latency_s: Floats
    first_transfer: Offsets
    flow: Ints
    size_bits: Floats
    rings: Rings | None = None

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
    """start_s, end_s: when each task's transfers began and when it was over, T; inf for never.
    finish_s: when each transfer's last byte left, X; inf for never. sent_bits: bits that each send
    carried. rate_times_s, rate_bps: the sum of all transfers' rates from each of these moments on.
    solves: how often rates were computed."""

    start_s: Floats
    end_s: Floats
    finish_s: Floats
    sent_bits: Floats
    rate_times_s: Floats
    rate_bps: Floats
    solves: int
