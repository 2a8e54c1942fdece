"""The event loop: after each event it solves only what the event affects.

`rocelab.sim.engine.run` runs an `Incremental` to its end. Python begins a small program, which may
end before the compiled loop is loaded; if it does not, that goes on in the same arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from rocelab.base.arrays import Floats, Ints, Longs
from rocelab.base.library import as_it_stands
from rocelab.routes.arrays.flows import Paths
from rocelab.sim.engine import state as at
from rocelab.sim.engine.events import advance
from rocelab.sim.engine.program import Change, Outcome, Program
from rocelab.sim.engine.state import fair_state, run_state

WORK = 4_000_000
"""Flows solved between two progress reports: about a second."""

PIECE = 2**18
"""Flows whose bits are added to the sends of their paths at a time."""

SMALL = 512
"""Transfers at most of a program that Python begins, and flows that it solves there."""


def no_load() -> None:
    """What is not loaded loads itself when it is called."""


class Incremental:
    """A running program. load: loads the compiled loop, before it is needed. everything: solve all
    flows at every event, for comparison."""

    def __init__(
        self,
        program: Program,
        paths: Paths,
        capacity_bps: Floats,
        eps: float,
        *,
        load: Callable[[], object] = no_load,
        everything: bool = False,
    ) -> None:
        self._paths, self._capacity_bps, self._limits = paths, capacity_bps, program.limits
        self._eps, self._everything, self._load = eps, everything, load
        self._in_python = SMALL if program.transfers <= SMALL else 0
        self._fair = fair_state(paths, capacity_bps, program.limits)
        self._run = run_state(program)
        self._again = np.empty(0, np.int32)
        self._sent = np.zeros(len(capacity_bps))

    @property
    def paths(self) -> Paths:
        """What rates are shared over: paths, with the sends of limits."""
        shared = len(self._fair.share) > 0
        return Paths(self._fair.start, self._fair.sends, self._fair.share if shared else None)

    @property
    def capacity_bps(self) -> Floats:
        """Of all sends, with those of limits."""
        capacities: Floats = self._fair.send[at.CAPACITY]
        return capacities

    @property
    def finished(self) -> int:
        """How many transfers have finished."""
        return int(self._run.counts[at.DONE])

    def advance(self, until_s: float, *, one_event: bool) -> bool:
        """Run until `until_s` or until nothing can move; False if not there yet."""
        again, self._again = self._again, self._again[:0]
        work = 1 if one_event else WORK
        loop = as_it_stands(advance) if self._in_python > 0 else None
        if loop is None:
            self._load()
            return advance(self._fair, self._run, until_s, self._eps, again, self._everything, work)
        work, before = min(work, self._in_python), self._run.counts[at.SOLVED]
        with np.errstate(all="ignore"):
            arrived = loop(self._fair, self._run, until_s, self._eps, again, self._everything, work)
        self._in_python -= max(1, int(self._run.counts[at.SOLVED] - before))
        return arrived

    def change(self, change: Change) -> None:
        """Solve the flows on sends whose capacity changed; all flows if paths changed.

        Raises ValueError if the number of sends or flows changed.
        """
        capacity = self._capacity_bps if change.capacity_bps is None else change.capacity_bps
        paths = change.paths or self._paths
        if len(capacity) != len(self._capacity_bps) or len(paths) != len(self._paths):
            raise ValueError("a change has other numbers of sends or flows than what it changes")
        if change.paths is None:
            other = capacity != self._capacity_bps
            self._capacity_bps = capacity
            self._fair.send[at.CAPACITY, : len(capacity)] = capacity
            owner = np.repeat(np.arange(len(paths), dtype=np.int32), np.diff(paths.start))
            self._again = np.unique(owner[other[paths.sends]])
        else:
            self._settle_sent()
            self._replace(paths, capacity)
            self._again = np.arange(len(paths), dtype=np.int32)
        self._again = self._again[self._fair.of_flow[at.FIRST, self._again] >= 0]

    def _replace(self, paths: Paths, capacity_bps: Floats) -> None:
        """Move transfers under way to other paths; no rate is solved."""
        before, run, flows = self._fair, self._run, len(paths)
        self._paths, self._capacity_bps = paths, capacity_bps
        self._fair = fair_state(paths, capacity_bps, self._limits)
        self._fair.send[at.CAPACITY, len(capacity_bps) :] = before.send[
            at.CAPACITY, len(capacity_bps) :
        ]
        self._fair.limit[:] = before.limit
        for column in (at.SERVED, at.UPDATED, at.END_KEY):
            self._fair.flow[column] = before.flow[column]
        self._fair.flag[at.TRANSFERS] = before.flag[at.TRANSFERS]
        for column in (at.FIRST, at.PLACE, at.END_FLOW):
            self._fair.of_flow[column, :flows] = before.of_flow[column, :flows]
        run.clock[at.TOTAL] = 0.0
        run.counts[at.INDEXED] = run.counts[at.LISTED] = 0

    def _under_way(self) -> npt.NDArray[np.intp]:
        transfer = self._run.transfer
        return np.flatnonzero((transfer[at.TARGET] > 0) & np.isinf(transfer[at.FINISH]))

    def _settle_sent(self) -> None:
        """Add the bits that flows have carried so far to the sends of their paths."""
        run, paths, flows = self._run, self._paths, self._fair.flow
        flows[at.SERVED] += flows[at.RATE] * (run.clock[at.NOW] - flows[at.UPDATED])
        flows[at.UPDATED] = run.clock[at.NOW]
        begun = self._under_way()
        flow = run.of_transfer[at.FLOW, begun]
        # A transfer queued behind another has sent nothing yet.
        got = np.maximum(flows[at.SERVED, flow], run.transfer[at.COUNTED, begun])
        bits = got - run.transfer[at.COUNTED, begun]
        run.transfer[at.COUNTED, begun] = got
        bits = flows[at.BITS] + np.bincount(flow, bits, len(paths))
        flows[at.BITS] = 0.0
        for begin in range(0, len(paths), PIECE):
            start = paths.start[begin : begin + PIECE + 1]
            carried = np.repeat(bits[begin : begin + PIECE], np.diff(start))
            if paths.share is not None:
                carried *= paths.share[start[0] : start[-1]]
            sends = paths.sends[start[0] : start[-1]]
            self._sent += np.bincount(sends, carried, len(self._sent))

    def rates(self) -> tuple[Ints, Floats]:
        """The flows with transfers that have begun and not finished, and the rate of each."""
        flow = np.unique(self._run.of_transfer[at.FLOW, self._under_way()])
        return flow, self._fair.flow[at.RATE, flow]

    def outcome(self) -> Outcome:
        self._settle_sent()
        run = self._run
        now, total = run.clock[at.NOW], run.clock[at.TOTAL]
        times, rates = run.point[:, : run.counts[at.POINTS]]
        if not len(times) or times[-1] < now:
            times, rates = np.append(times, now), np.append(rates, total)
        return Outcome(
            start_s=run.task[at.STARTED],
            end_s=run.task[at.ENDED],
            finish_s=run.transfer[at.FINISH].copy(),
            sent_bits=self._sent,
            rate_times_s=times,
            rate_bps=rates,
            solves=int(run.counts[at.SOLVES]),
            held=self._held(),
        )

    def _held(self) -> Longs:
        """The flows whose limit held back what they sent."""
        if self._limits is None:
            return np.empty(0, np.int64)
        held: Longs = self._limits.flow[self._fair.limit[at.HELD_BITS] > 0].astype(np.int64)
        return held
