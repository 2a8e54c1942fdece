"""The last minutes of a lab's links and queues, from which the page draws its plots.

Takes what each sample has; gives series of values, one for each time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from rocelab.errors import InputError
from rocelab.live.state import find_link
from rocelab.live.values import DIGITS, NS_PER_S
from rocelab.measure.health.reading import Reading
from rocelab.measure.health.sample import deepest
from rocelab.plan.fabric import Fabric
from rocelab.plan.queues import plan_queues

MOST_SAMPLES = 360
"""Three minutes, two a second."""
MOST_QUEUES = 200_000
"""Of all samples together, some 200 bytes each: a large fabric that is congested everywhere has
fewer samples."""
MOST_LINKS = 32
"""Of one request."""


@dataclass(frozen=True, slots=True)
class QueueValues:
    """A queue since the sample before: its greatest depth that is known, and packets a second that
    it marked and dropped."""

    depth_bytes: float
    marks_per_s: float
    drops_per_s: float


Queue = tuple[int, int]
"""A direction (`Fabric.directed_links`), whose sender has the queue, and a class."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A sample: loads of all directions, and the queues that were not empty and idle."""

    t_ns: int
    loads: NDArray[np.float32]
    queues: Mapping[Queue, QueueValues]


class History:
    """The newest samples of a lab. Any thread may use it."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._bin_edges_bytes = plan_queues(fabric).bin_edges_bytes
        self._index = {link.name: 2 * number for number, link in enumerate(fabric.links)}
        self._lock = threading.Lock()
        self._moments: deque[Moment] = deque(maxlen=MOST_SAMPLES)

    def add(self, loads: Mapping[int, float], before: Reading | None, now: Reading) -> None:
        """Take a sample: the loads that are not 0, by direction, and both its readings."""
        row = np.zeros(len(self._fabric.directed_links), np.float32)
        row[list(loads)] = list(loads.values())
        queues = {} if before is None else dict(self._queues(before, now))
        with self._lock:
            self._moments.append(Moment(now.time_ns, row, queues))
            while sum(len(each.queues) for each in self._moments) > MOST_QUEUES:
                self._moments.popleft()

    def _queues(self, before: Reading, now: Reading) -> Iterator[tuple[Queue, QueueValues]]:
        per_s = NS_PER_S / (now.time_ns - before.time_ns)
        for direction, link in enumerate(self._fabric.directed_links):
            port = link.sender, link.port.interface
            then = before.queues.get(port, {})
            for number, queue in now.queues.get(port, {}).items():
                if number not in then:
                    continue
                old = then[number]
                depth = deepest(old.on_arrival, queue.on_arrival, self._bin_edges_bytes)
                values = QueueValues(
                    max(queue.depth_bytes, depth),
                    round((queue.marked - old.marked) * per_s, DIGITS),
                    round((queue.dropped_packets - old.dropped_packets) * per_s, DIGITS),
                )
                if any(asdict(values).values()):
                    yield (direction, number), values

    def document(self, names: Sequence[str], since_ns: int) -> Mapping[str, object]:
        """The series of these links after `since_ns`. Raises InputError for a link that the lab
        does not have, and for too many."""
        if len(names) > MOST_LINKS:
            raise InputError("these are too many links", hint=f"ask for {MOST_LINKS} at once")
        places = [self._index[find_link(self._fabric, name).name] for name in names]
        with self._lock:
            moments = [each for each in self._moments if each.t_ns > since_ns]
        directions = [place + way for place in places for way in (0, 1)]
        return {
            "t_ns": [each.t_ns for each in moments],
            "series": [*self._loads(moments, directions), *self._depths(moments, directions)],
        }

    def _loads(
        self, moments: Sequence[Moment], directions: Iterable[int]
    ) -> Iterator[Mapping[str, object]]:
        for direction in directions:
            values = [round(float(each.loads[direction]), DIGITS) for each in moments]
            yield {**self._place(direction), "class": None, "what": "load", "values": values}

    def _depths(
        self, moments: Sequence[Moment], directions: Iterable[int]
    ) -> Iterator[Mapping[str, object]]:
        wanted = set(directions)
        used = {queue for each in moments for queue in each.queues if queue[0] in wanted}
        for direction, number in sorted(used):
            found = [each.queues.get((direction, number), _IDLE) for each in moments]
            for what in ("depth_bytes", "marks_per_s", "drops_per_s"):
                values = [getattr(each, what) for each in found]
                if any(values):
                    place = self._place(direction)
                    yield {**place, "class": number, "what": what, "values": values}

    def _place(self, direction: int) -> Mapping[str, str]:
        link = self._fabric.directed_links[direction]
        return {"link": link.link.name, "from": link.sender, "to": link.receiver}


_IDLE = QueueValues(0, 0, 0)
