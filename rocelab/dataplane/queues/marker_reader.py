"""Reads the counters of the engine `bpf`, through its pins, from any process.

The maps are mapped into memory, so reading all ports of a lab is a copy; the depths of all queues
at one moment take one run of the program's `sample`.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rocelab.base.errors import InputError
from rocelab.dataplane.queues.marker import PINS, QUEUE_FIELDS, QUEUE_WORDS
from rocelab.labfile.queues import TRAFFIC_CLASSES
from rocelab.linux import bpf
from rocelab.linux.counters import DepthCounters, OtherCounters, PortCounters, QueueCounters
from rocelab.planning.queues import BINS, QueuePlan

_OTHERS = (
    *("tcp", "udp", "icmp", "rest", "bytes", "marked", "ce_out"),
    *("dropped_packets", "dropped_bytes"),
)
Words = npt.NDArray[np.uint64]
_WORD_BYTES = 8


class MarkerReader(bpf.Pinned):
    """The counters of a lab that is up."""

    def __init__(self, plan: QueuePlan, folder: Path) -> None:
        """Open the pins in `folder`. Raises InputError if the lab is gone."""
        self._plan = plan
        queues = (len(plan.ports) + 1) * TRAFFIC_CLASSES
        try:
            super().__init__(folder, PINS)
        except bpf.BpfError as error:
            raise InputError(f"the lab's queues cannot be read: {error}") from None
        self._maps = {
            "queues": self._map("queues", queues * QUEUE_WORDS, mmap.PROT_READ | mmap.PROT_WRITE),
            "depths": self._map("depths", queues, mmap.PROT_READ),
        }
        shape = (-1, TRAFFIC_CLASSES, QUEUE_WORDS)
        self._queues = _words(self._maps["queues"], queues * QUEUE_WORDS).reshape(shape)
        self._depths = _words(self._maps["depths"], queues).reshape(-1, TRAFFIC_CLASSES)

    def _map(self, name: str, words: int, access: int) -> mmap.mmap:
        size = -(-words * _WORD_BYTES // mmap.PAGESIZE) * mmap.PAGESIZE
        return mmap.mmap(self._pinned[name], size, mmap.MAP_SHARED, access)

    def close(self) -> None:
        """Close the maps."""
        super().close()
        del self._queues, self._depths
        for mapped in self._maps.values():
            mapped.close()

    def depths_bytes(self) -> Words:
        """Bytes in each queue now, by slot and class; row 0 is of no port."""
        bpf.run(self._pinned["sample"])
        return self._depths.copy()

    def forget_maximum(self) -> None:
        """Count the greatest depth of each queue anew, and what others held at most."""
        for name in ("depth_max", "others_held_max"):
            self._queues[:, :, QUEUE_FIELDS.index(name)] = 0

    def counters(self) -> PortCounters:
        """Every queue's counters now."""
        depths = self.depths_bytes().tolist()
        now = self._queues.copy()
        used = np.any(now, axis=2)
        return {
            (port.node, port.interface): {
                number: self._counters(now[port.slot, number].tolist(), depths[port.slot][number])
                if used[port.slot, number]
                else UNUSED
                for number in self._plan.classes
            }
            for port in self._plan.ports
        }

    @staticmethod
    def _counters(words: list[int], depth_bytes: int) -> QueueCounters:
        field: dict[str, Any] = dict(zip(QUEUE_FIELDS, words, strict=False))
        packets = tuple(words[-2 * BINS : -BINS])
        marked = tuple(words[-BINS:])
        return QueueCounters(
            packets=sum(packets),
            bytes=field["bytes"],
            marked=sum(marked),
            dropped_packets=field["dropped_packets"],
            depth_bytes=depth_bytes,
            dropped_bytes=field["dropped_bytes"],
            ce_out=field["ce_out"],
            on_arrival=DepthCounters(field["depth_max"], field["depth_sum"], packets, marked),
            others=OtherCounters(
                **{name: field[f"others_{name}"] for name in _OTHERS},
                held_max_bytes=field["others_held_max"],
                crowded_out=field["crowded_out"],
            ),
        )


UNUSED = MarkerReader._counters([0] * QUEUE_WORDS, 0)


def _words(mapped: mmap.mmap, count: int) -> Words:
    return np.frombuffer(mapped, dtype=np.uint64, count=count)
