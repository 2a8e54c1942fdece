"""Counters and depths of the queues of a lab that is up, once or as a series.

Works from any process: the fabric gives the ports, and the lab's folder the engine that counts.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

from rocelab.base.errors import InputError
from rocelab.dataplane.queues.engine import read_engine
from rocelab.dataplane.queues.marker_reader import MarkerReader
from rocelab.dataplane.queues.red_reader import RedReader
from rocelab.labfile.queues import TRAFFIC_CLASSES, QueueEngine
from rocelab.linux.closing import Closing
from rocelab.linux.counters import PortCounters
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import plan_queues
from rocelab.record import LabFiles

Depths = npt.NDArray[np.uint64]


class QueueReader(Closing):
    """Reads the queues of a lab's network as often as wanted."""

    def __init__(self, fabric: Fabric) -> None:
        """Raises InputError if the lab is not up or its ports have no queues."""
        files = LabFiles.of(fabric)
        self.plan = plan_queues(fabric)
        self.engine = read_engine(files)
        match self.engine:
            case QueueEngine.BPF:
                self._reader: MarkerReader | RedReader = MarkerReader(self.plan, files.bpf)
            case QueueEngine.RED:
                self._reader = RedReader(self.plan, files)
            case _:
                raise InputError(
                    f"the switch ports of lab {fabric.name} have no queues",
                    "it is not up, has queues.engine: off or no servers, or this machine cannot: "
                    "see `rocelab doctor`",
                )

    def close(self) -> None:
        """Close the reader; the lab does not change."""
        self._reader.close()

    def counters(self) -> PortCounters:
        """Counters of every queue of every switch port, by (node, interface) and class."""
        return self._reader.counters()

    def forget_maximum(self) -> None:
        """Count the greatest depth of every queue anew."""
        self._reader.forget_maximum()

    def depths_bytes(self) -> Depths:
        """Bytes in every queue now: by slot of the plan (0 is of no port) and class."""
        return self._reader.depths_bytes()


def read_queue_counters(fabric: Fabric) -> PortCounters:
    """Counters of every queue of a lab's switch ports, by (node, interface) and traffic class.

    Raises InputError as `QueueReader` does. To read often, keep a `QueueReader`.
    """
    with QueueReader(fabric) as reader:
        return reader.counters()


@dataclass(frozen=True, slots=True)
class DepthSample:
    """Bytes in a queue at a time of CLOCK_MONOTONIC (the lab's clock, not the model's)."""

    t_ns: int
    node: str
    interface: str
    traffic_class: int
    depth_bytes: int


class QueueSampler:
    """Samples all depths on a thread of its own while it is entered.

    Afterwards `samples` has a sample for each queue that held bytes and one for when it was next
    seen empty; `times_ns` has the time of every round, which tells gaps from empty queues.
    """

    def __init__(self, fabric: Fabric, interval_ns: int = 20_000_000) -> None:
        """Raises InputError as `QueueReader` does."""
        self.times_ns: list[int] = []
        self._reader = QueueReader(fabric)
        self._interval_s = interval_ns / 1e9
        self._found: list[tuple[int, npt.NDArray[np.intp], Depths]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="queues", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._reader.close()

    @property
    def samples(self) -> list[DepthSample]:
        """The samples, in order of time."""
        ports = {port.slot: port for port in self._reader.plan.ports}
        return [
            DepthSample(
                t_ns,
                ports[index // TRAFFIC_CLASSES].node,
                ports[index // TRAFFIC_CLASSES].interface,
                index % TRAFFIC_CLASSES,
                depth,
            )
            for t_ns, indexes, depths in self._found
            for index, depth in zip(indexes.tolist(), depths.tolist(), strict=True)
        ]

    def _run(self) -> None:
        held = np.zeros(0, dtype=np.intp)
        due_s = time.monotonic()
        while True:
            t_ns = time.monotonic_ns()
            depths = self._reader.depths_bytes().ravel()
            holding = np.flatnonzero(depths)
            queues = np.union1d(held, holding)
            self.times_ns.append(t_ns)
            if queues.size:
                self._found.append((t_ns, queues, depths[queues]))
            held = holding
            due_s = max(due_s + self._interval_s, time.monotonic())
            if self._stop.wait(due_s - time.monotonic()):
                return
