"""The last minutes of a lab, from which the page draws its plots and the fabric as it was.

Takes what each sample has; gives series of values, one for each time, and what held at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocelab.base.errors import InputError
from rocelab.linux.counters import Place
from rocelab.live.state import find_link
from rocelab.live.values import DIGITS, NS_PER_S
from rocelab.observe.health.reading import Reading
from rocelab.observe.health.sample import deepest
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import plan_queues

MOST_SAMPLES = 360
"""Three minutes, two a second."""
MOST_QUEUES = 200_000
"""Limits all samples together, some 200 bytes each: a large fabric that is congested everywhere has
fewer samples."""
MOST_LINKS = 32
"""The links of one request."""


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
    """A sample: by metric the values of all directions, where one is not 0; the ports without
    carrier; the states of nodes that are not as planned; the queues that were not empty and
    idle."""

    t_ns: int
    values: Mapping[str, NDArray[np.float32]]
    dark: frozenset[Place]
    states: Mapping[str, str]
    queues: Mapping[Queue, QueueValues]

    def value(self, metric: str, direction: int) -> float:
        row = self.values.get(metric)
        return 0.0 if row is None else round(float(row[direction]), DIGITS)

    def used(self, metric: str) -> Mapping[int, float]:
        """The values that are not 0, by direction."""
        row = self.values.get(metric)
        used = [] if row is None else np.flatnonzero(row).tolist()
        return {direction: self.value(metric, direction) for direction in used}


def carriers(fabric: Fabric, dark: frozenset[Place]) -> Iterator[tuple[str, list[bool]]]:
    """The links of which a port is in `dark`, and whether either end has carrier."""
    for link in fabric.links if dark else ():
        carrier = [(port.node, port.interface) not in dark for port in (link.a, link.b)]
        if not all(carrier):
            yield link.name, carrier


class LoadHistory:
    """The newest samples of a lab. Any thread may use it."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric
        self._bin_edges_bytes = {
            port: plan.bin_edges_bytes
            for plan in map(plan_queues, fabric.networks)
            for port in plan.port_of
        }
        self._index = {link.name: 2 * number for number, link in enumerate(fabric.links)}
        self._lock = threading.Lock()
        self._moments: deque[Moment] = deque(maxlen=MOST_SAMPLES)

    def add(
        self,
        values: Mapping[str, Mapping[int, float]],
        states: Mapping[str, str],
        before: Reading | None,
        now: Reading,
    ) -> None:
        """Take a sample: by metric the values that are not 0, by direction; the states of nodes
        that are not as planned; and both its readings."""
        rows = {metric: self._row(value) for metric, value in values.items() if value}
        dark = frozenset(port for port, read in now.ports.items() if not read.carrier)
        queues = {} if before is None else dict(self._queues(before, now))
        with self._lock:
            self._moments.append(Moment(now.time_ns, rows, dark, states, queues))
            while sum(len(moment.queues) for moment in self._moments) > MOST_QUEUES:
                self._moments.popleft()

    def _row(self, values: Mapping[int, float]) -> NDArray[np.float32]:
        row = np.zeros(len(self._fabric.directed_links), np.float32)
        row[list(values)] = list(values.values())
        return row

    def moments(self) -> Sequence[Moment]:
        """All samples, in order of time."""
        with self._lock:
            return tuple(self._moments)

    def at(self, t_ns: int, metric: str) -> Mapping[str, object]:
        """What held at a time by the sample before it, or by the oldest that there is. Raises
        InputError before the first sample."""
        with self._lock:
            if not self._moments:
                raise InputError("nothing has been read yet", hint="ask again in a second")
            earlier = (moment for moment in reversed(self._moments) if moment.t_ns <= t_ns)
            moment = next(earlier, self._moments[0])
        return {
            "t_ns": moment.t_ns,
            "metric": metric,
            "values": moment.used(metric),
            "carrier": dict(carriers(self._fabric, moment.dark)),
            "states": moment.states,
        }

    def _queues(self, before: Reading, now: Reading) -> Iterator[tuple[Queue, QueueValues]]:
        per_s = NS_PER_S / now.since_ns(before)
        for direction, link in enumerate(self._fabric.directed_links):
            port = link.sender, link.port.interface
            then = before.queues.get(port, {})
            for number, queue in now.queues.get(port, {}).items():
                old = then.get(number)
                if old is None or (queue == old and not queue.depth_bytes):
                    continue
                depth = deepest(old.on_arrival, queue.on_arrival, self._bin_edges_bytes[port])
                values = QueueValues(
                    max(queue.depth_bytes, depth),
                    round((queue.marked - old.marked) * per_s, DIGITS),
                    round((queue.dropped_packets - old.dropped_packets) * per_s, DIGITS),
                )
                if values != _IDLE:
                    yield (direction, number), values

    def document(self, names: Sequence[str], since_ns: int) -> Mapping[str, object]:
        """The series of these links after `since_ns`. Raises InputError for a link that the lab
        does not have, and for too many."""
        if len(names) > MOST_LINKS:
            raise InputError("these are too many links", hint=f"ask for {MOST_LINKS} at once")
        places = [self._index[find_link(self._fabric, name).name] for name in names]
        with self._lock:
            moments = [moment for moment in self._moments if moment.t_ns > since_ns]
        directions = [place + way for place in places for way in (0, 1)]
        return {
            "t_ns": [moment.t_ns for moment in moments],
            "series": [*self._loads(moments, directions), *self._depths(moments, directions)],
        }

    def _loads(
        self, moments: Sequence[Moment], directions: Iterable[int]
    ) -> Iterator[Mapping[str, object]]:
        for direction in directions:
            values = [moment.value("load", direction) for moment in moments]
            yield {**self._place(direction), "class": None, "what": "load", "values": values}

    def _depths(
        self, moments: Sequence[Moment], directions: Iterable[int]
    ) -> Iterator[Mapping[str, object]]:
        wanted = set(directions)
        used = {queue for moment in moments for queue in moment.queues if queue[0] in wanted}
        for direction, number in sorted(used):
            queues = [moment.queues.get((direction, number), _IDLE) for moment in moments]
            for what in ("depth_bytes", "marks_per_s", "drops_per_s"):
                values = [getattr(queue, what) for queue in queues]
                if any(values):
                    place = self._place(direction)
                    yield {**place, "class": number, "what": what, "values": values}

    def _place(self, direction: int) -> Mapping[str, str]:
        link = self._fabric.directed_links[direction]
        return {"link": link.link.name, "from": link.sender, "to": link.receiver}


_IDLE = QueueValues(0, 0, 0)
