"""A schedule as a workload in which each send is a step: the order that a lab's ranks keep.

`ordered` repeats a schedule, and says which step each send of each iteration is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Longs
from rocelab.jobs.collectives import IterationEnd, Schedule
from rocelab.jobs.patterns.base import Send
from rocelab.jobs.workload import Sends, Step, Workload


@dataclass(frozen=True, eq=False)
class Ordered:
    """A schedule that is repeated."""

    workload: Workload
    step_of: Longs
    """The step of each send of each iteration: iterations x sends."""


def ordered(
    schedule: Schedule,
    iterations: int,
    compute_s: float = 0.0,
    *,
    barrier: bool = False,
    launches: bool = True,
) -> Ordered:
    """`iterations` of a schedule, `compute_s` between them.

    Each send waits for those that it waits for in the lab, and for its own time. A rank begins an
    iteration, after its pause, when all its sends and receives of the previous one have finished
    and it has computed what follows them; with a `barrier`, when those of all ranks have. launches:
    whether hosts launch the sends that wait for none.
    """
    return _Steps(schedule, launches=launches).ordered(iterations, compute_s, barrier=barrier)


class _Steps:
    def __init__(self, schedule: Schedule, *, launches: bool) -> None:
        self._schedule, self._launches = schedule, launches
        self._steps: list[Step] = []
        self._of_rank: dict[int, list[int]] = {send.source: [] for send in schedule.sends}
        for send in schedule.sends:
            self._of_rank[send.source].append(send.id)
            if send.destination in self._of_rank:
                self._of_rank[send.destination].append(send.id)
        columns = np.array(
            [(send.source, send.destination, send.size_bytes) for send in schedule.sends], np.int64
        ).reshape(-1, 3)
        source, destination = columns[:, :2].T.astype(np.int32)
        self._sends = [
            Sends(source[position], destination[position], columns[position, 2])
            for position in (slice(send.id, send.id + 1) for send in schedule.sends)
        ]

    def ordered(self, iterations: int, compute_s: float, *, barrier: bool) -> Ordered:
        begin: dict[int, tuple[int, ...]] = dict.fromkeys(self._of_rank, ())
        rows: list[list[int]] = []
        for iteration in range(iterations):
            if iteration:
                begin = self._pauses(iteration, rows[-1], begin, compute_s, barrier=barrier)
            rows.append(self._sent(iteration, begin))
        for rank, end in self._schedule.ends.items():
            self._computed(iterations - 1, end, rows[-1], begin.get(rank, ()))
        workload = Workload(self._schedule.ranks, tuple(self._steps), ordered=True)
        return Ordered(workload, np.array(rows, np.int64))

    def _add(self, name: str, after: Iterable[int], compute_s: float, iteration: int) -> int:
        self._steps.append(Step(name, tuple(after), compute_s, iteration=iteration))
        return len(self._steps) - 1

    def _sent(self, iteration: int, begin: dict[int, tuple[int, ...]]) -> list[int]:
        """Add every send; return their steps."""
        row: list[int] = []
        for send in self._schedule.sends:
            after = self._waits(iteration, send, row, begin[send.source])
            self._steps.append(
                Step(
                    f"iteration {iteration + 1}, send {send.id}",
                    after,
                    0.0 if send.after else send.at_ns / 1e9,
                    self._sends[send.id],
                    iteration,
                    launches=self._launches and not send.after,
                )
            )
            row.append(len(self._steps) - 1)
        return row

    def _waits(
        self, iteration: int, what: Send | IterationEnd, row: list[int], begin: tuple[int, ...]
    ) -> tuple[int, ...]:
        """The steps that something waits for, of which some compute."""
        after = list(begin)
        lags_ns = what.lags_ns or (0,) * len(what.after)
        name = f"iteration {iteration + 1}, computing"
        for before, lag_ns in zip(what.after, lags_ns, strict=True):
            step = row[before]
            after.append(self._add(name, (step,), lag_ns / 1e9, iteration) if lag_ns else step)
        if what.after and what.at_ns:
            after.append(self._add(name, begin, what.at_ns / 1e9, iteration))
        return tuple(after)

    def _computed(
        self, iteration: int, end: IterationEnd, row: list[int], begin: tuple[int, ...]
    ) -> tuple[int, ...]:
        """Add what a rank computes behind its last sends."""
        after = self._waits(iteration, end, row, begin)
        if not end.after and end.at_ns:
            name = f"iteration {iteration + 1}, computing"
            after = (self._add(name, begin, end.at_ns / 1e9, iteration),)
        return after

    def _pauses(
        self,
        iteration: int,
        row: list[int],
        begin: dict[int, tuple[int, ...]],
        compute_s: float,
        *,
        barrier: bool,
    ) -> dict[int, tuple[int, ...]]:
        """Add the pause of each rank, or of all, before an iteration; return what its sends wait
        for."""
        ends = {
            rank: self._computed(iteration - 1, end, row, begin.get(rank, ()))
            for rank, end in self._schedule.ends.items()
        }
        name = f"iteration {iteration + 1}, pause"
        if barrier:
            after = (*row, *(step for steps in ends.values() for step in steps))
            return dict.fromkeys(self._of_rank, (self._add(name, after, compute_s, iteration),))
        return {
            rank: (
                self._add(
                    f"{name} of rank {rank}",
                    (*(row[send] for send in sends), *ends.get(rank, ())),
                    compute_s,
                    iteration,
                ),
            )
            for rank, sends in self._of_rank.items()
        }
