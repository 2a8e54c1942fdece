"""The fluid engine once more, with numpy alone: every event solves all transfers under way.

The tests compare `rocelab.sim.engine` with it. Both take a `Program` and give an `Outcome`, and
share no other code. Every solve is proven.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Floats, Ints
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine.program import Change, Outcome, Program
from rocelab.sim.engine.proof import prove

SAME = 1e-12
NOISE = 1.0 + 1e-13


def run_stepwise(
    program: Program,
    paths: Paths,
    capacity_bps: Floats,
    *,
    eps: float = 0.0,
    changes: Iterable[Change] = (),
) -> Outcome:
    """What `rocelab.sim.engine.run.run` does, with all points of the total rate."""
    running = _Running(program, paths, capacity_bps, eps)
    for change in changes:
        running.advance(change.time_s)
        if running.is_finished:
            break
        running.change(change)
    else:
        running.advance(math.inf)
    return running.outcome()


def rates_in_rounds(paths: Paths, capacity_bps: Floats, transfers: Ints) -> Floats:
    """The max-min fair rate of one transfer of each flow that has any; 0 for other flows.

    In a round every send whose share is the least on the paths of its flows becomes their
    bottleneck. There are as many rounds as the longest chain of bottlenecks that depend on one
    another.
    """
    rates = np.zeros(len(paths))
    lengths = np.diff(paths.start)
    owner = np.repeat(np.arange(len(paths)), lengths)
    kept = transfers[owner] > 0
    owner, send = owner[kept], paths.sends[kept]
    weight = transfers[owner].astype(np.float64)
    if paths.share is not None:
        weight *= paths.share[kept]
    sends = len(capacity_bps)
    carried = np.zeros(sends)
    while len(owner):
        open_weight = np.bincount(send, weight, sends)
        left = np.maximum(capacity_bps - carried, 0)
        share = np.divide(left, open_weight, out=np.full(sends, np.inf), where=open_weight > 0)
        met = share[send]
        starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        least = np.minimum.reduceat(met, starts)
        spread = np.repeat(least, np.diff(np.r_[starts, len(owner)]))
        not_least = np.bincount(send[met > spread * NOISE], minlength=sends) > 0
        fixed = np.logical_or.reduceat(~not_least[send], starts)
        rates[owner[starts[fixed]]] = least[fixed]
        done = np.repeat(fixed, np.diff(np.r_[starts, len(owner)]))
        carried += np.bincount(send[done], weight[done] * spread[done], sends)
        owner, send, weight = owner[~done], send[~done], weight[~done]
    return rates


class _Running:
    """A running program. `_number`: the transfers under way; `_left`: bits left of each and of
    those before it on its flow; `_rate`: the flow's rate."""

    def __init__(self, program: Program, paths: Paths, capacity_bps: Floats, eps: float) -> None:
        self._paths, self._capacity_bps = paths, capacity_bps
        self._program, self._eps, self._now = program, eps, 0.0
        self._number = np.empty(0, np.int64)
        self._left, self._rate = np.empty(0), np.empty(0)
        self._solved = True
        self._waiting = np.diff(program.after_start).tolist()
        self._open = np.diff(program.first_transfer).tolist()
        self._task = np.repeat(np.arange(program.tasks), self._open)
        self._next: list[list[int]] = [[] for _ in range(program.tasks)]
        for task in range(program.tasks):
            for before in program.after[program.after_start[task] : program.after_start[task + 1]]:
                self._next[before].append(task)
        self._start = np.full(program.tasks, np.inf)
        self._end = np.full(program.tasks, np.inf)
        self._finish = np.full(program.transfers, np.inf)
        self._ready = [0.0] * program.tasks
        self._starts: list[tuple[float, int]] = []
        self._carried = np.zeros(len(paths))
        self._sent = np.zeros(len(capacity_bps))
        self._points: list[tuple[float, float]] = []
        self._solves = 0
        for task in [task for task, count in enumerate(self._waiting) if count == 0]:
            self._queue(task)

    @property
    def is_finished(self) -> bool:
        return bool(np.isfinite(self._finish).all())

    def _queue(self, task: int) -> None:
        """Queue a task that waits for no other: it starts after its delay; without transfers it
        ends."""
        queue = [task]
        while queue:
            task = queue.pop()
            start = self._ready[task] + float(self._program.delay_s[task])
            if self._open[task]:
                heapq.heappush(self._starts, (start, task))
                continue
            self._start[task] = start
            queue += self._over(task, start + float(self._program.latency_s[task]))

    def _over(self, task: int, time: float) -> list[int]:
        """Finish a task. Returns the tasks that waited for this one alone."""
        self._end[task] = time
        freed = []
        for later in self._next[task]:
            self._ready[later] = max(self._ready[later], time)
            self._waiting[later] -= 1
            if self._waiting[later] == 0:
                freed.append(later)
        return freed

    def _solve(self) -> None:
        flow = self._program.flow[self._number]
        busy = (np.bincount(flow, minlength=len(self._paths)) > 0).astype(np.int32)
        rates = rates_in_rounds(self._paths, self._capacity_bps, busy)
        active = np.flatnonzero(busy)
        prove(self._paths, self._capacity_bps, rates[active], active.astype(np.int32))
        self._rate = rates[flow]
        self._solved = True
        self._solves += 1
        self._points.append((self._now, float(rates.sum())))

    def advance(self, until_s: float) -> None:
        while True:
            if not self._solved:
                self._solve()
            ends = np.full(len(self._number), np.inf)
            np.divide(self._left, self._rate, out=ends, where=self._rate > 0)
            first = self._now + float(ends.min(initial=math.inf))
            starts = self._starts[0][0] if self._starts else math.inf
            time = min(first, starts)
            if math.isinf(time) or time > until_s * (1 + SAME):
                if math.isfinite(until_s):
                    self._pass(max(until_s, self._now))
                return
            self._complete(ends, time, first, until_s)

    def _complete(self, ends: Floats, time: float, first: float, until_s: float) -> None:
        """Take the completions that come first, then the starts that are due."""
        limit = time * (1 + SAME)
        if self._eps > 0 and first == time:
            longest = float(ends[np.isfinite(ends)].max())
            limit = max(limit, min(first + self._eps * longest, until_s) * (1 + SAME))
        finish = self._now + ends
        order = np.flatnonzero(finish <= limit)
        order = order[np.argsort(finish[order], kind="stable")]
        taken = 0
        for place in order:
            if self._starts and finish[place] > self._starts[0][0] * (1 + SAME):
                break
            taken += 1
            time = max(time, float(finish[place]))
            number = self._number[place]
            self._finish[number] = finish[place]
            task = int(self._task[number])
            self._open[task] -= 1
            if self._open[task] == 0:
                for later in self._over(task, self._last_chunk(task, float(finish[place]))):
                    self._queue(later)
        if self._starts and self._starts[0][0] <= time * (1 + SAME):
            time = max(time, self._starts[0][0])
        self._pass(time)
        self._keep(np.setdiff1d(np.arange(len(ends)), order[:taken]))
        while self._starts and self._starts[0][0] <= time * (1 + SAME):
            start, task = heapq.heappop(self._starts)
            self._start[task] = start
            begin, end = self._program.first_transfer[task : task + 2]
            self._queue_up(np.arange(begin, end))
        self._solved = False

    def _last_chunk(self, task: int, time: float) -> float:
        """When a task whose last transfer ended at `time` is over, its rings' chunks included."""
        rings = self._program.rings
        if rings is not None:
            part = slice(*self._program.first_transfer[task : task + 2])
            ring = rings.of_transfer[part]
            spent_s = (self._finish[part] - self._start[task])[ring >= 0]
            ring = ring[ring >= 0]
            chunk_s = np.bincount(ring, spent_s, len(rings.share)) * rings.share + rings.latency_s
            time = max(time, float(self._start[task] + chunk_s[ring].max(initial=0.0)))
        return time + float(self._program.latency_s[task])

    def _queue_up(self, begun: npt.NDArray[np.int64]) -> None:
        """Begin transfers, each behind those of its flow."""
        behind = self._behind()
        left = self._program.size_bits[begun].copy()
        for place, flow in enumerate(self._program.flow[begun]):
            left[place] += behind[flow]
            behind[flow] = left[place]
        self._number = np.r_[self._number, begun]
        self._left = np.r_[self._left, left]

    def _behind(self) -> Floats:
        """The bits left of all transfers of each flow."""
        left = np.zeros(len(self._paths))
        np.maximum.at(left, self._program.flow[self._number], self._left)
        return left

    def _keep(self, kept: npt.NDArray[np.intp]) -> None:
        self._number, self._left = self._number[kept], self._left[kept]
        self._rate = self._rate[kept]

    def _pass(self, time: float) -> None:
        """Advance transfers at their rates up to `time`."""
        bits = self._rate * max(time - self._now, 0.0)
        before = self._behind()
        self._left = np.maximum(self._left - bits, 0.0)
        self._carried += before - self._behind()
        self._now = max(self._now, time)

    def change(self, change: Change) -> None:
        self._settle_sent()
        if change.paths is not None:
            self._paths = change.paths
        if change.capacity_bps is not None:
            self._capacity_bps = change.capacity_bps
        self._solved = False

    def _settle_sent(self) -> None:
        """Add the bits that flows have carried so far to the sends of their paths."""
        bits = np.repeat(self._carried, np.diff(self._paths.start))
        if self._paths.share is not None:
            bits *= self._paths.share
        self._sent += np.bincount(self._paths.sends, bits, len(self._sent))
        self._carried[:] = 0

    def outcome(self) -> Outcome:
        self._settle_sent()
        points = self._points
        if not points or points[-1][0] < self._now:
            points = [*points, (self._now, float(self._rate.sum()))]
        times, rates = np.array(points).T
        return Outcome(
            start_s=self._start,
            end_s=self._end,
            finish_s=self._finish,
            sent_bits=self._sent,
            rate_times_s=times,
            rate_bps=rates,
            solves=self._solves,
        )
