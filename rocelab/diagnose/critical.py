"""Analyses the time of each iteration: its critical path, and transfers compared with similar ones.

From the recorded times of a job's sends and its schedule it computes each send's excess over others
of its size, and for every iteration the chain of sends that its end waited for. Pure.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rocelab.jobs.collectives import Schedule
from rocelab.results.job import StepRecords

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

TYPICAL = 0.25
"""The quantile of times of sends of one size that represents an undisturbed one: a cause that slows
fewer than three quarters of them does not change it."""

SIZE_STEP = 1.05
"""Sends whose sizes differ by a smaller factor are similar."""


@dataclass(frozen=True, slots=True)
class CriticalSend:
    """A send on a critical path: `ready_ns` is when the last of what it waited for was over, or its
    rank's iteration could begin; `ended_ns` is its arrival or, if its sender waited for that, its
    acknowledgement."""

    iteration: int
    send: int
    ready_ns: int
    ended_ns: int
    excess_ns: int


@dataclass(frozen=True, slots=True, eq=False)
class SendTiming:
    """A job's times as arrays, a row per recorded iteration, a column per send."""

    schedule: Schedule
    first: int
    """The number of the first row's iteration."""

    posted: Numbers
    arrived: Numbers
    acked: Numbers
    excess: Numbers
    took: Numbers
    """How long each iteration took, from the end of the one before. It has no columns."""

    paths: tuple[tuple[CriticalSend, ...], ...]

    def worst(self, iterations: Collection[int] = ()) -> int:
        """The row, of some iterations or of all, whose critical path has the greatest excess."""
        rows = [iteration - self.first for iteration in iterations] or range(len(self.took))
        return max(rows, key=lambda row: sum(link.excess_ns for link in self.paths[row]))


def timing(steps: StepRecords, schedule: Schedule, pause_ns: int = 0) -> SendTiming:
    """The timing of a job whose ranks pause for `pause_ns` between iterations.

    Raises ValueError if steps and schedule do not belong together.
    """
    posted, arrived, acked = (
        np.array(table, np.int64) for table in (steps.posted_ns, steps.arrived_ns, steps.acked_ns)
    )
    if posted.shape[1:] != (len(schedule.sends),):
        raise ValueError("the steps are not those of the schedule")
    spent = arrived - posted
    typical = _typical(spent, schedule)
    excess = np.maximum(0, spent - typical)
    began, ended = np.array(steps.began_ns), np.array(steps.ended_ns)
    last = ended.max(axis=1)
    took = last - np.concatenate((began[:1].min(axis=1), last[:-1] + pause_ns))
    # A rank that stood still begins late, when others have begun or all have ended the last one.
    due = np.empty_like(began)
    due[0] = began[0] if steps.first else began[0].min()
    due[1:] = last[:-1, None] + pause_ns
    walk = _Walk(schedule, steps.first, np.minimum(began, due), arrived, acked, typical)
    paths = tuple(walk.critical_chain(row, int(np.argmax(ended[row]))) for row in range(len(took)))
    return SendTiming(schedule, steps.first, posted, arrived, acked, excess, took, paths)


def _typical(spent: Numbers, schedule: Schedule) -> Numbers:
    """The undisturbed duration of each send."""
    sizes = np.array([send.size_bytes for send in schedule.sends], np.float64)
    classes = np.round(np.log(sizes) / np.log(SIZE_STEP)).astype(np.int64)
    quantiles = np.zeros(len(sizes), np.int64)
    for size_class in np.unique(classes):
        mask = classes == size_class
        quantiles[mask] = int(np.quantile(spent[:, mask], TYPICAL))
    return quantiles


class _Walk:
    def __init__(
        self,
        schedule: Schedule,
        first: int,
        begins: Numbers,
        arrived: Numbers,
        acked: Numbers,
        typical: Numbers,
    ) -> None:
        self._sends = schedule.sends
        self._first = first
        self._begins, self._arrived, self._acked = begins, arrived, acked
        self._typical = typical
        self._source = np.array([send.source for send in schedule.sends])
        self._destination = np.array([send.destination for send in schedule.sends])

    def critical_chain(self, row: int, rank: int) -> tuple[CriticalSend, ...]:
        """The chain that the end of an iteration at its last rank waited for, in order of time."""
        into = np.where(self._destination == rank, self._arrived[row], -1)
        out = np.where(self._source == rank, self._acked[row], -1)
        over = np.maximum(into, out)
        send = int(np.argmax(over))
        sends = []
        while True:
            ended = int(over[send])
            here, after = self._source[send], list(self._sends[send].after)
            over = np.full(len(self._sends), -1, np.int64)
            for before in after:
                is_arrival = self._destination[before] == here
                over[before] = (self._arrived if is_arrival else self._acked)[row, before]
            ready = int(over.max() if after else self._begins[row, here])
            excess = max(0, ended - ready - int(self._typical[send]))
            sends.append(CriticalSend(self._first + row, send, ready, ended, excess))
            if not after:
                return tuple(reversed(sends))
            send = int(np.argmax(over))


def step_of(schedule: Schedule) -> Numbers:
    """The step of each send: one more than the greatest step of its dependencies, from 0."""
    steps = np.zeros(len(schedule.sends), np.int64)
    for send in schedule.sends:
        if send.after:
            steps[send.id] = 1 + max(steps[before] for before in send.after)
    return steps


def lateness(timing: SendTiming, ranks: int, row: int | None = None) -> Floats:
    """The lateness of arrivals at each rank in each step, [rank, step] in ns, NaN for no arrivals:
    the worst excess of the sends to the rank, in one iteration or, with None, in any."""
    steps = step_of(timing.schedule)
    excess = timing.excess.max(axis=0) if row is None else timing.excess[row]
    table = np.full((ranks, int(steps.max()) + 1), np.nan)
    for send in timing.schedule.sends:
        at = send.destination, int(steps[send.id])
        table[at] = np.fmax(table[at], excess[send.id])
    return table
