"""Reads what the queues of switch ports did during a run.

The figures are differences per port and traffic class, with the engine that counted; a lab without
queues has none.
"""

from __future__ import annotations

from dataclasses import asdict

from rocelab.dataplane.queues.engine import read_engine
from rocelab.dataplane.queues.reading import QueueReader
from rocelab.labfile.queues import QueueEngine
from rocelab.linux.counters import DepthCounters, OtherCounters, PortCounters, QueueCounters
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import BINS, class_of_dscp
from rocelab.record import LabFiles
from rocelab.results.job import OtherTraffic, QueueFigures

_NONE = QueueCounters(0, 0, 0, 0, 0, None, None, None)
_NO_DEPTHS = DepthCounters(0, 0, (0,) * BINS, (0,) * BINS)


class QueueWatch:
    """The counters of a lab's queues when this object is created, to compare with later ones. From
    then on queues count their greatest depth anew."""

    def __init__(self, fabric: Fabric) -> None:
        """Raises InputError if the lab's queues cannot be read."""
        self._fabric = fabric
        self.engine = read_engine(LabFiles.of(fabric))
        self._before = self._read(begins=True)

    def figures(self) -> tuple[QueueFigures, ...]:
        """What each queue did since; idle queues are left out."""
        return differences(self._before, self._read(begins=False))

    def _read(self, *, begins: bool) -> PortCounters:
        if self.engine is QueueEngine.OFF:
            return {}
        with QueueReader(self._fabric) as reader:
            if begins:
                reader.forget_maximum()
            return reader.counters()


def traffic_class(fabric: Fabric, dscp: int) -> int:
    """The class of packets with this DSCP."""
    return class_of_dscp(fabric.spec.queues.dscp)[dscp]


def differences(before: PortCounters, after: PortCounters) -> tuple[QueueFigures, ...]:
    """What each queue did between two readings of the same ports. The greatest depth is that of the
    second, which counts it from the first on."""
    mismatches = []
    for (node, interface), queues in after.items():
        for number, now in queues.items():
            then = before.get((node, interface), {}).get(number, _NONE)
            packets = now.packets - then.packets
            dropped = now.dropped_packets - then.dropped_packets
            if not packets and not dropped:
                continue
            arrived = None
            if now.on_arrival is not None:
                arrived = _since(then.on_arrival or _NO_DEPTHS, now.on_arrival)
            mismatches.append(
                QueueFigures(
                    node=node,
                    interface=interface,
                    traffic_class=number,
                    packets=packets,
                    bytes=now.bytes - then.bytes,
                    marked=now.marked - then.marked,
                    dropped_packets=dropped,
                    ce_out=None if now.ce_out is None else now.ce_out - (then.ce_out or 0),
                    depth_max_bytes=None if arrived is None else arrived.max_bytes,
                    depth_mean_bytes=None if arrived is None else arrived.mean_bytes,
                    packets_by_depth=() if arrived is None else arrived.packets,
                    marked_by_depth=() if arrived is None else arrived.marked,
                    others=_others(then.others, now.others),
                )
            )
    return tuple(mismatches)


def _others(then: OtherCounters | None, now: OtherCounters | None) -> OtherTraffic | None:
    """What was not RoCEv2 between two readings; None if nothing was."""
    if now is None:
        return None
    before = asdict(then or OtherCounters())
    counts = {name: count - before[name] for name, count in asdict(now).items()}
    counts["held_max_bytes"] = now.held_max_bytes
    return OtherTraffic(**counts) if any(counts.values()) else None


def _since(then: DepthCounters, now: DepthCounters) -> DepthCounters:
    return DepthCounters(
        now.max_bytes,
        now.sum_bytes - then.sum_bytes,
        tuple(b - a for a, b in zip(then.packets, now.packets, strict=True)),
        tuple(b - a for a, b in zip(then.marked, now.marked, strict=True)),
    )
