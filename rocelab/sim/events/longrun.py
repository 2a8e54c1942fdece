"""Runs jobs through hours or months of failures by iterations: how long each takes follows from the
current state of the network.

Takes outages, iteration times per state of the network, the number of iterations, and how queue
pairs and jobs recover from a loss. Returns each job's completion time and lost time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rocelab.base.arrays import Bools, Floats
from rocelab.base.errors import InputError
from rocelab.labfile.base import SECOND
from rocelab.results.whatif import is_lucky
from rocelab.routes.arrays.network import Network
from rocelab.sim.events.event_spec import RestartSpec
from rocelab.sim.events.retransmission import Retransmission
from rocelab.sim.events.timeline import EventOutage, link_state

IterationTimes = Callable[[Bools, Floats], Mapping[str, float]]
"""Seconds per iteration of each job while routing sees these links, L, as up and sends, 2L, carry
this many bit/s; inf for a job that makes no progress."""

_States = frozenset[tuple[int, bool]]


class Conditions:
    """Iteration times by the set of active outages; each is computed once."""

    def __init__(
        self, network: Network, outages: Sequence[EventOutage], iteration_times: IterationTimes
    ) -> None:
        self._network = network
        self._outages = outages
        self._iteration_times = iteration_times
        self._known: dict[_States, Mapping[str, float]] = {}

    def times(self, states: _States) -> Mapping[str, float]:
        """Seconds per iteration of each job; `states`: the numbers of the active outages, each with
        whether routing has moved away from it."""
        if states not in self._known:
            on = [(self._outages[number], routed) for number, routed in sorted(states)]
            self._known[states] = self._iteration_times(*link_state(self._network, on))
        return self._known[states]

    def undisturbed(self) -> Mapping[str, float]:
        """Seconds per iteration without outages. Raises InputError if a job makes no progress even
        then."""
        times = self.times(frozenset())
        for job, seconds in times.items():
            if not math.isfinite(seconds):
                raise InputError(
                    f"job {job} never ends, even with no event",
                    "is there a path for all its ranks?",
                )
        return times


@dataclass(frozen=True, slots=True)
class Break:
    """When a job breaks by itself, and its cause."""

    at_s: float
    cause: str


_NEVER = Break(math.inf, "")


@dataclass(frozen=True, slots=True)
class JobHistory:
    """What happened to a job, in seconds."""

    job: str
    jct_s: float
    """Inf if it never makes progress again."""
    healthy_s: float
    """Its JCT without outages, checkpoints included."""
    work_s: float
    """Without checkpoints."""
    stalled_s: float
    """Time it waited."""
    lucky: bool
    """Its iterations were shorter in some state of the network, which counted as no gain."""
    restarts: int
    restarting_s: float
    """Time that restarts took."""
    lost_work_s: float
    """Time on work since the last checkpoint and in a checkpoint that broke off."""
    breaks: Mapping[str, int]
    """How often it broke by itself, by cause; the other restarts followed from queue pairs that
    gave up."""


def run_through(
    network: Network,
    outages: Sequence[EventOutage],
    iteration_times: IterationTimes,
    iterations: Mapping[str, int],
    retransmissions: Mapping[str, Retransmission],
    restart: RestartSpec,
    breaks: Mapping[str, Iterator[Break]] | None = None,
) -> tuple[JobHistory, ...]:
    """Run each job from time 0 to the end of its iterations.

    A job without progress stalls until its queue pairs' next retry on a whole path. Once they give
    up it restarts from its last checkpoint on spare hosts, and the outage no longer affects it.
    `breaks` of a job by itself, in order of time, also restart it; a break during a restart begins
    it anew. Iterations change pace in the middle; a stall of one rank stalls the whole job. Raises
    InputError as `Conditions.undisturbed` does.
    """
    conditions = Conditions(network, outages, iteration_times)
    conditions.undisturbed()
    moments = sorted(
        {
            moment
            for outage in outages
            for moment in (outage.begins_s, outage.routed_s, outage.ends_s)
            if math.isfinite(moment)
        }
    )
    return tuple(
        _Run(
            job,
            count,
            outages,
            moments,
            conditions,
            retransmissions[job],
            restart,
            (breaks or {}).get(job, iter(())),
        ).history()
        for job, count in iterations.items()
    )


class _Run:
    """One job on its way."""

    def __init__(
        self,
        job: str,
        iterations: int,
        outages: Sequence[EventOutage],
        moments: Sequence[float],
        conditions: Conditions,
        retransmission: Retransmission,
        restart: RestartSpec,
        breaks: Iterator[Break],
    ) -> None:
        self._job = job
        self._breaks = breaks
        self._next_break = next(breaks, _NEVER)
        self._broke: Counter[str] = Counter()
        self._outages = outages
        self._moments = moments
        self._conditions = conditions
        self._retransmission = retransmission
        self._every_s = restart.checkpoint_every / SECOND
        self._takes_s = restart.checkpoint_takes / SECOND
        self._restart_s = restart.restart_takes / SECOND
        self._left_behind: set[int] = set()
        self._now = 0.0
        self._left = float(iterations)
        self._since_s = 0.0
        self._undone = 0.0
        self._stalled_s = self._restarting_s = self._lost_work_s = 0.0
        self._restarts = 0
        self._lucky = False
        self._iteration_s = conditions.times(frozenset())[job]
        self._work_s = iterations * self._iteration_s
        self._healthy_s = self._undisturbed(self._work_s)

    def history(self) -> JobHistory:
        """Run to the end."""
        while self._left > 0 and math.isfinite(self._now):
            pace_s = self._pace_s()
            if math.isfinite(pace_s):
                self._work_until(pace_s, min(self._next_moment(), self._next_break.at_s))
            else:
                self._stall()
            if self._left and self._next_break.at_s <= self._now < math.inf:
                self._take_break()
                self._restart(self._now)
        return JobHistory(
            job=self._job,
            jct_s=self._now,
            healthy_s=self._healthy_s,
            work_s=self._work_s,
            stalled_s=self._stalled_s,
            lucky=self._lucky,
            restarts=self._restarts,
            restarting_s=self._restarting_s,
            lost_work_s=self._lost_work_s,
            breaks=dict(self._broke),
        )

    def _undisturbed(self, work_s: float) -> float:
        """The time with a checkpoint after each full interval but the last."""
        return work_s + max(0, math.ceil(work_s / self._every_s - 1e-9) - 1) * self._takes_s

    def _on(self, now: float) -> list[int]:
        return [
            number
            for number, outage in enumerate(self._outages)
            if outage.begins_s <= now < outage.ends_s and number not in self._left_behind
        ]

    def _pace_s(self) -> float:
        states = frozenset(
            (number, self._outages[number].routed_s <= self._now) for number in self._on(self._now)
        )
        pace_s = self._conditions.times(states)[self._job]
        self._lucky |= is_lucky(self._iteration_s, pace_s)
        return max(self._iteration_s, pace_s)

    def _next_moment(self) -> float:
        return next((moment for moment in self._moments if moment > self._now), math.inf)

    def _work_until(self, pace_s: float, until: float) -> None:
        """Run iterations and checkpoints until the work is done or `until`. A checkpoint that has
        begun is finished whatever happens to the network; if the job breaks during it, it does not
        count."""
        while self._left > 0 and self._now < until:
            run_s = min(self._every_s - self._since_s, self._left * pace_s, until - self._now)
            self._now += run_s
            self._since_s += run_s
            done = run_s / pace_s
            self._left = 0.0 if self._left - done < 1e-9 else self._left - done
            self._undone += done
            if self._left and self._since_s >= self._every_s * (1 - 1e-12):
                if self._next_break.at_s < self._now + self._takes_s:
                    broke_s = max(self._now, self._next_break.at_s)
                    self._since_s += broke_s - self._now
                    self._now = broke_s
                    return
                self._now += self._takes_s
                self._since_s = self._undone = 0.0

    def _stall(self) -> None:
        """Wait for a whole path; restart if that takes too long."""
        began = self._now
        while not math.isfinite(self._pace_s()):
            gives_up = began + self._retransmission.gives_up_s
            self._now = self._next_moment()
            if self._now > gives_up:
                self._break(began, gives_up)
                return
        through = float(self._retransmission.through_s(began, self._now))
        if math.isfinite(through):
            self._stalled_s += through - began
            self._now = through
        else:
            self._break(began, began + self._retransmission.gives_up_s)

    def _break(self, began: float, gives_up: float) -> None:
        self._stalled_s += gives_up - began
        self._left_behind.update(self._on(began))
        self._left_behind.update(self._on(gives_up))
        self._restart(gives_up)

    def _take_break(self) -> None:
        self._broke[self._next_break.cause] += 1
        self._next_break = next(self._breaks, _NEVER)

    def _restart(self, broke_s: float) -> None:
        """Restart from the last checkpoint; a break meanwhile begins the restart anew."""
        self._left += self._undone
        self._lost_work_s += self._since_s
        self._undone = self._since_s = 0.0
        self._restarts += 1
        self._now = broke_s + self._restart_s
        while self._next_break.at_s < self._now:
            if self._next_break.at_s > broke_s:
                self._restarts += 1
                self._now = self._next_break.at_s + self._restart_s
            self._take_break()
        self._restarting_s += self._now - broke_s
