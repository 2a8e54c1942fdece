"""Reads what the queues of switch ports did during a run.

The figures are differences per port and traffic class, with the engine that counted; a lab without
queues has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.kernel.counters import DepthCounters, PortCounters, QueueCounters
from rocelab.plan.fabric import Fabric
from rocelab.plan.queues import class_of_dscp, plan_queues
from rocelab.results.job import QueueFigures
from rocelab.runtime.queues.engine import read_engine
from rocelab.runtime.queues.reading import read_queue_counters
from rocelab.runtime.record import LabFiles
from rocelab.spec.queues import QueueEngine

_NONE = QueueCounters(0, 0, 0, 0, 0, None, None, None)


class QueueWatch:
    """The counters of a lab's queues when this object is created, to compare with later ones."""

    def __init__(self, fabric: Fabric) -> None:
        """Raises InputError if the lab's queues cannot be read."""
        self._fabric = fabric
        self.engine = read_engine(LabFiles(fabric.name))
        self._before = self._read()

    def figures(self) -> tuple[QueueFigures, ...]:
        """What each queue did since; idle queues are left out."""
        return differences(self._before, self._read(), plan_queues(self._fabric).bin_edges_bytes)

    def _read(self) -> PortCounters:
        return {} if self.engine is QueueEngine.OFF else read_queue_counters(self._fabric)


def traffic_class(fabric: Fabric, dscp: int) -> int:
    """The class of packets with this DSCP."""
    return class_of_dscp(fabric.spec.queues.dscp)[dscp]


def differences(
    before: PortCounters, after: PortCounters, bin_edges_bytes: Sequence[int]
) -> tuple[QueueFigures, ...]:
    """What each queue did between two readings of the same ports."""
    found = []
    for (node, interface), queues in after.items():
        for number, now in queues.items():
            then = before.get((node, interface), {}).get(number, _NONE)
            packets = now.packets - then.packets
            dropped = now.dropped_packets - then.dropped_packets
            if not packets and not dropped:
                continue
            maximum, mean = _depths(then.on_arrival, now.on_arrival, bin_edges_bytes)
            found.append(
                QueueFigures(
                    node=node,
                    interface=interface,
                    traffic_class=number,
                    packets=packets,
                    bytes=now.bytes - then.bytes,
                    marked=now.marked - then.marked,
                    dropped_packets=dropped,
                    ce_out=None if now.ce_out is None else now.ce_out - (then.ce_out or 0),
                    depth_max_bytes=maximum,
                    depth_mean_bytes=mean,
                )
            )
    return tuple(found)


def _depths(
    then: DepthCounters | None, now: DepthCounters | None, bin_edges_bytes: Sequence[int]
) -> tuple[int | None, float | None]:
    """The greatest depth on arrival and the mean. If the queue was deeper in an earlier run, the
    greatest is an upper bound: the top of the highest bin that counted, or the sum of all
    depths."""
    if now is None:
        return None, None
    before = then.packets if then else (0,) * len(now.packets)
    new = [b - a for a, b in zip(before, now.packets, strict=True)]
    if not any(new):
        return 0, 0.0
    total = now.sum_bytes - (then.sum_bytes if then else 0)
    mean = total / sum(new)
    if then is None or now.max_bytes > then.max_bytes:
        return now.max_bytes, mean
    highest = max(index for index, count in enumerate(new) if count)
    above = bin_edges_bytes[highest + 1] - 1 if highest + 1 < len(new) else now.max_bytes
    return min(above, now.max_bytes, total), mean
