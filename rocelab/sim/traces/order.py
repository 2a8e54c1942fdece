"""Condenses a graph of compute and communication to steps: compute between communications is merged
into the time of its longest path.

The `Step`s start every communication exactly when the graph would, and are as few as possible.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rocelab.jobs.workload import Sends, Step

COMPUTE = "compute"
"""The name of a step that only computes."""

_START = -1
"""Stands for the beginning of the workload in place of a step."""

_Waits = dict[int, float]
"""The seconds of compute after the end of each step that is waited for."""


@dataclass(frozen=True, slots=True)
class Communication:
    """What ranks do together."""

    name: str
    sends: Callable[[], Sends | None]
    """Makes the sends; None: the ranks only wait for one another."""


def topological(before: Sequence[Sequence[int]]) -> list[int]:
    """The vertices in an order in which each comes after those in `before`, lowest number first.

    Vertices on or after a cycle are left out.
    """
    waiting = [len(earlier) for earlier in before]
    behind: list[list[int]] = [[] for _ in before]
    for vertex, earlier in enumerate(before):
        for predecessor in earlier:
            behind[predecessor].append(vertex)
    ready = [vertex for vertex, count in enumerate(waiting) if not count]
    order: list[int] = []
    while ready:
        vertex = heapq.heappop(ready)
        order.append(vertex)
        for successor in behind[vertex]:
            waiting[successor] -= 1
            if not waiting[successor]:
                heapq.heappush(ready, successor)
    return order


def condense(
    seconds: Sequence[float],
    before: Sequence[Sequence[int]],
    order: Sequence[int],
    communications: Mapping[int, Communication],
) -> tuple[Step, ...]:
    """The steps of a graph whose vertices take `seconds`, or communicate, visited in `order`.

    A communication starts when the longest path of compute to it is over, each path counted from
    the end of the communication that it begins with. If lengths differ, all paths but the shortest
    get a step of compute of their own. Paths implied by others are left out. Compute after the last
    communication is a step at the end.
    """
    steps = _Steps()
    readers = [0] * len(seconds)
    for earlier in before:
        for vertex in earlier:
            readers[vertex] += 1
    waits_of: dict[int, _Waits] = {}
    last: _Waits = {}
    for vertex in order:
        waits: _Waits = {}
        for earlier_vertex in before[vertex]:
            _merge(waits, waits_of[earlier_vertex])
            readers[earlier_vertex] -= 1
            if not readers[earlier_vertex]:
                del waits_of[earlier_vertex]
        waits = steps.needed(waits) or {_START: 0.0}
        if communication := communications.get(vertex):
            waits = {steps.add(communication.name, waits, communication.sends()): 0.0}
        else:
            waits = {step: wait + seconds[vertex] for step, wait in waits.items()}
        if readers[vertex]:
            waits_of[vertex] = waits
        else:
            _merge(last, waits)
    steps.finish(last)
    return tuple(steps.made)


class _Steps:
    """Steps as they are added, and the known times between the ends of two steps."""

    def __init__(self) -> None:
        self.made: list[Step] = []
        self._behind: dict[int, _Waits] = {}
        self._earliest: dict[int, float] = {}

    def needed(self, waits: _Waits) -> _Waits:
        """`waits` without those that always end no later than another one, whatever the
        communications take."""
        left = dict(waits)
        for step, wait in waits.items():
            for implied, between in self._behind.get(step, {}).items():
                if implied in left and waits[implied] <= between + wait:
                    del left[implied]
        others = (self._earliest[step] + wait for step, wait in left.items() if step != _START)
        if left.get(_START, 0.0) <= max(others, default=-1.0):
            left.pop(_START, None)
        return left

    def add(self, name: str, waits: _Waits, sends: Sends | None) -> int:
        """The number of a new step that starts when all `waits` are over."""
        base = min(waits.values())
        after: list[int] = []
        for step, wait in sorted(waits.items()):
            begin = () if step == _START else (step,)
            if wait > base:
                self.made.append(Step(COMPUTE, begin, wait - base))
                after.append(len(self.made) - 1)
            else:
                after.extend(begin)
        self.made.append(Step(name, tuple(sorted(after)), base, sends))
        number = len(self.made) - 1
        self._behind[number] = waits
        self._earliest[number] = max(
            self._earliest.get(step, 0.0) + wait for step, wait in waits.items()
        )
        return number

    def finish(self, waits: _Waits) -> None:
        """Add the compute at the end: no later step waits for all of `waits`."""
        for step, wait in sorted(self.needed(waits).items()):
            if wait > 0:
                self.made.append(Step(COMPUTE, () if step == _START else (step,), wait))


def _merge(waits: _Waits, others: Mapping[int, float]) -> None:
    for step, wait in others.items():
        if wait >= waits.get(step, 0.0):
            waits[step] = wait
