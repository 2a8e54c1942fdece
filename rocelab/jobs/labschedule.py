"""A workload as the sends of a lab, whose ranks know only what they send and receive themselves.

`lab_schedule` takes a `Workload` and returns its `Schedule`. A merged send becomes the sends that
it is the sum of. A rank's sends of a step wait for those of the steps before that
the rank sends or receives, and then for the computing in between; of the others it cannot know.
Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rocelab.base.arrays import NONE, Floats, Longs
from rocelab.base.errors import InputError
from rocelab.base.wording import counted
from rocelab.jobs.collectives import IterationEnd, Schedule
from rocelab.jobs.patterns.base import Send
from rocelab.jobs.workload import Sends, Step, StepTiming, Workload

MOST_SENDS = 2**15
"""Of an iteration: so many sends a run records one by one."""

MOST_ROUNDS = 64
"""Sends one after the other in a step; more are sent as fewer, longer ones."""

MOST_WAITS = 2**21
"""Sends that others wait for, over all of them."""

SIMULATED = "`rocelab simulate` takes the same file, at any size"


@dataclass(frozen=True, eq=False)
class LabSchedule:
    """The schedule of a workload: of one iteration, which ranks repeat, or of several."""

    workload: Workload
    schedule: Schedule
    step: Longs
    """The step of each send."""
    differs: tuple[str, ...]
    """What is not as in a simulation of the same workload."""

    @property
    def iterations(self) -> int:
        """How many iterations the schedule has."""
        return 1 + max(step.iteration for step in self.workload.steps)

    def spans(self, ends_ns: Floats) -> tuple[Floats, Floats]:
        """When each of its iterations begins and ends, from when each step is over: from the end of
        the one before, or the moment for which its steps wait (`StepTiming.BEFORE`)."""
        ends = np.zeros(self.iterations)
        begins = np.zeros(self.iterations)
        for step, end_ns in zip(self.workload.steps, ends_ns.tolist(), strict=True):
            if step.counts is StepTiming.WITHIN:
                ends[step.iteration] = max(ends[step.iteration], end_ns)
        begins[1:] = ends[:-1]
        for step, end_ns in zip(self.workload.steps, ends_ns.tolist(), strict=True):
            if step.counts is StepTiming.BEFORE:
                begins[step.iteration] = end_ns
        return begins, ends

    def step_times(self, start_ns: Floats, end_ns: Floats) -> tuple[Floats, Floats]:
        """When each step began to send and was over, from when each send did, in ns from the
        iteration's begin. A step without sends is over once it has computed after the last step
        that it waits for."""
        steps = self.workload.steps
        begins, ends = np.full(len(steps), np.inf), np.full(len(steps), -np.inf)
        np.minimum.at(begins, self.step, start_ns)
        np.maximum.at(ends, self.step, end_ns)
        for number, step in enumerate(steps):
            before_ns = max((float(ends[earlier]) for earlier in step.after), default=0.0)
            ready_ns = before_ns + step.compute_s * 1e9
            if not np.isfinite(ends[number]):
                begins[number] = ends[number] = ready_ns
        return begins, ends


def lab_schedule(workload: Workload, launch_s: float = 0.0) -> LabSchedule:
    """The sends of a workload. launch_s: what a host takes before the first sends of a collective.

    Raises InputError for what a lab cannot hold, for sends that cannot be taken apart, and where a
    rank would have to know of sends between others alone.
    """
    sends: list[Send] = []
    step_of: list[int] = []
    knowledge = _Knowledge(workload, launch_s)
    joined: list[str] = []
    waits = 0
    for number, step in enumerate(workload.steps):
        last: dict[int, list[int]] = {}
        if step.sends is not None:
            parts, factor = _parts(step.sends, step.name)
            if factor > 1:
                joined.append(step.name)
            first = len(sends)
            if first + len(parts) > MOST_SENDS:
                raise InputError(
                    f"more than {MOST_SENDS:,} sends, which a lab does not record",
                    hint=f"use fewer ranks, layers, micro-batches or flows; {SIMULATED}",
                )
            for part in parts:
                ready = knowledge.ready(number, part.source)
                before = tuple(ready.after)
                after = (*before, *(first + earlier for earlier in part.after))
                lags = (*ready.after.values(), *(0.0 for _ in part.after))
                waits += len(after)
                sends.append(
                    Send(
                        len(sends),
                        part.source,
                        part.destination,
                        part.size_bytes,
                        after,
                        tuple(_ns(lag) for lag in lags) if any(lags) else (),
                        _ns(ready.at_s),
                    )
                )
                step_of.append(number)
                if part.is_last:
                    for rank in (part.source, part.destination):
                        last.setdefault(rank, []).append(sends[-1].id)
            if waits > MOST_WAITS:
                raise InputError(
                    f"the sends of an iteration wait for more than {MOST_WAITS:,} others",
                    hint=f"use fewer ranks or steps; {SIMULATED}",
                )
        knowledge.over(number, last)
    if not sends:
        raise InputError("no rank sends another a byte", hint="there is nothing to run on a lab")
    ends = {
        rank: IterationEnd(
            tuple(end.after), tuple(_ns(lag) for lag in end.after.values()), _ns(end.at_s)
        )
        for rank, end in knowledge.ends()
    }
    size_bytes = sum(send.size_bytes for send in sends)
    schedule = Schedule(
        None, workload.ranks, size_bytes, tuple(sends), ends, workload.own_queue_pairs
    )
    return LabSchedule(
        workload, schedule, np.array(step_of, np.int64), (*_joined(joined), *knowledge.differs)
    )


def _joined(steps: Sequence[str]) -> Iterator[str]:
    if steps:
        yield (
            f"{counted(len(steps), 'step')} of more than {MOST_ROUNDS} sends one after the other, "
            f"as {steps[0]}, {'goes' if len(steps) == 1 else 'go'} in fewer, longer ones"
        )


@dataclass(frozen=True, slots=True)
class _Part:
    """A send of a step; `after` are parts of the step by their places."""

    source: int
    destination: int
    size_bytes: int
    after: tuple[int, ...]
    is_last: bool
    """Of what its step sends from the source to the destination."""


def _parts(sends: Sends, name: str) -> tuple[list[_Part], int]:
    """The parts of a step's sends, each after those that it waits for, and how many rounds each
    part is.

    What a rank sends another in several rounds goes one after the other. In a ring a rank passes on
    what it has received: its part of a round waits for that of the round before from the rank
    behind it, and not for its own to be acknowledged. Sends with a turn wait for the one before.
    """
    if sends.fill_bytes:
        raise InputError(
            f"step {name} is a tree or a chain of pieces, which is not taken apart for a lab",
            hint=f"{SIMULATED}; or run the collective as a job of its own",
        )
    count = len(sends.source)
    rounds = np.broadcast_to(sends.rounds, count)
    hops = np.maximum(1, sends.each_hops)
    parts = np.minimum(np.minimum(-(-sends.each_parts // hops), rounds), sends.size_bytes)
    factor = max(1, -(-int(parts.max(initial=1)) // MOST_ROUNDS))
    parts = -(-parts // factor)
    chain = np.full(count, NONE) if sends.chain is None else sends.chain
    behind: dict[tuple[int, int], list[int]] = {}
    if sends.tokens:
        for edge in np.flatnonzero(chain != NONE).tolist():
            behind.setdefault((int(chain[edge]), int(sends.destination[edge])), []).append(edge)
    before = _turns(sends)
    made: list[_Part] = []
    place: dict[tuple[int, int], int] = {}
    for turn in range(int(parts.max(initial=0))):
        for edge in np.flatnonzero(parts > turn).tolist():
            source = int(sends.source[edge])
            waits: list[tuple[int, int]] = []
            if turn:
                ring = behind.get((int(chain[edge]), source), [edge])
                waits = [(other, min(turn, int(parts[other])) - 1) for other in ring]
            elif edge in before:
                waits = [(before[edge], int(parts[before[edge]]) - 1)]
            size, longer = divmod(int(sends.size_bytes[edge]), int(parts[edge]))
            place[edge, turn] = len(made)
            made.append(
                _Part(
                    source,
                    int(sends.destination[edge]),
                    size + (turn < longer),
                    tuple(place[wait] for wait in waits),
                    turn == parts[edge] - 1,
                )
            )
    return made, factor


def _turns(sends: Sends) -> dict[int, int]:
    """The send before each that has a turn."""
    if sends.turn is None:
        return {}
    waiting = np.flatnonzero(sends.turn != NONE)
    order = waiting[np.argsort(sends.turn[waiting], kind="stable")].tolist()
    turn = sends.turn
    return {later: earlier for earlier, later in pairwise(order) if turn[later] == turn[earlier]}


@dataclass(slots=True)
class _Ready:
    """When a rank may go on: so long after the end of sends of its own, by their ids, and after the
    iteration's begin, in seconds."""

    after: dict[int, float] = field(default_factory=dict)
    at_s: float = -np.inf
    unseen: frozenset[int] = frozenset()
    """Steps that it should wait for too, and of whose sends it sends or receives none."""

    def join(self, other: _Ready) -> None:
        for send, lag_s in other.after.items():
            self.after[send] = max(lag_s, self.after.get(send, 0.0))
        self.at_s = max(self.at_s, other.at_s)
        self.unseen |= other.unseen

    def later(self, seconds: float) -> _Ready:
        after = {send: lag_s + seconds for send, lag_s in self.after.items()}
        return _Ready(after, self.at_s + seconds, self.unseen)


class _Knowledge:
    """What ranks know of when steps are over. Steps are told in their order."""

    def __init__(self, workload: Workload, launch_s: float) -> None:
        self._steps, self._ranks = workload.steps, workload.ranks
        self._launch_s = launch_s
        self._begins: dict[tuple[int, int], _Ready] = {}
        self._last: list[Mapping[int, Sequence[int]]] = []
        self._differing: dict[int, int] = {}

    def ready(self, number: int, rank: int) -> _Ready:
        """When a rank may send in a step. Raises InputError if it cannot know."""
        ready = self._begin(number, rank)
        if ready.unseen:
            earlier = max(ready.unseen)
            if not ready.after:
                raise InputError(
                    f"rank {rank} begins step {self._steps[number].name} after sends between other "
                    f"ranks alone, of step {self._steps[earlier].name}: on a lab it cannot know "
                    "when they are over",
                    hint=SIMULATED,
                )
            self._differing.setdefault(number, earlier)
        return ready

    def over(self, number: int, last: Mapping[int, Sequence[int]]) -> None:
        """The step's last sends of each rank that sends or receives in it."""
        assert number == len(self._last)
        self._last.append(last)

    def ends(self) -> Iterator[tuple[int, _Ready]]:
        """When the iteration ends for each rank that computes behind its last sends."""
        awaited = {earlier for step in self._steps for earlier in step.after}
        final = [number for number in range(len(self._steps)) if number not in awaited]
        for rank in range(self._ranks):
            end = _Ready()
            for number in final:
                if not self._steps[number].after and not self._sees(number, rank):
                    continue  # It has no part in it.
                end.join(self._end(number, rank))
            lags = {send: lag_s for send, lag_s in end.after.items() if lag_s}
            if lags or end.at_s > 0:
                yield rank, _Ready(lags, end.at_s)

    @property
    def differs(self) -> tuple[str, ...]:
        """The steps whose ranks do not wait for all that they wait for in a simulation."""
        if not self._differing:
            return ()
        step, earlier = next(iter(self._differing.items()))
        names = self._steps[step].name, self._steps[earlier].name
        return (
            f"ranks go on by what they send and receive themselves: in "
            f"{counted(len(self._differing), 'step')} some begin without waiting for sends between "
            f"others, for which a simulation waits (first: {names[0]}, after {names[1]}), once "
            "these would be over without any network time",
        )

    def _begin(self, number: int, rank: int) -> _Ready:
        """Walks back through the steps before, without recursion: traces have many."""
        known, waiting = self._begins, [number]
        while waiting:
            at = waiting[-1]
            if (at, rank) in known:
                waiting.pop()
                continue
            missing = [
                earlier
                for earlier in self._steps[at].after
                if not self._sees(earlier, rank) and (earlier, rank) not in known
            ]
            if missing:
                waiting += missing
                continue
            ready = _Ready() if self._steps[at].after else _Ready(at_s=0.0)
            for earlier in self._steps[at].after:
                ready.join(self._end(earlier, rank))
            known[at, rank] = ready.later(self._computed_s(self._steps[at]))
        return known[number, rank]

    def _sees(self, number: int, rank: int) -> bool:
        return rank in self._last[number]

    def _end(self, number: int, rank: int) -> _Ready:
        """When a rank takes a step for over."""
        if self._sees(number, rank):
            return _Ready(dict.fromkeys(self._last[number][rank], 0.0))
        begin = self._begin(number, rank)
        if self._last[number]:
            return _Ready(begin.after, begin.at_s, begin.unseen | {number})
        return begin

    def _computed_s(self, step: Step) -> float:
        launches = step.launches and step.sends is not None
        return step.compute_s + (self._launch_s if launches else 0.0)


def _ns(seconds: float) -> int:
    return round(max(0.0, seconds) * 1e9)
