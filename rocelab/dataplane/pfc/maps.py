"""The maps of rocelab/dataplane/bpf/pfc.bpf.c, through their pins: what is held, sent and paused.

The arrays of ports, ingresses and egresses are mapped into memory: reading them is a copy. Offsets
are those of the C structures, all of 64-bit words.

Words are written through views: the program reads them at any moment, and `struct.pack_into` writes
zeros before a value. A ring buffer whose reader is at 0 for a moment is full, and loses an event.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from rocelab.linux import bpf
from rocelab.linux.closing import Closing

CLASSES = 8
PORT_FIELDS = (
    *("device", "peer", "pool", "headroom", "delay_ns", "storms"),
    *("xoff", "dynamic_th", "xon", "xon_offset", "reserved"),
    *("drain", "size", "full", "empty", "held", "held_ns", "late"),
    *("overflow_packets", "held_max", "unreported"),
)
INGRESS_FIELDS = (
    *("held", "headroom", "headroom_late", "headroom_beyond", "over", "crossed_ns"),
    *("packets", "held_max", "headroom_max", "xoffs", "dropped_packets", "late_packets"),
)
EGRESS_FIELDS = (
    *("gated", "deaf", "freed", "discards", "pauses", "resumes", "packets", "bytes"),
    *("out_packets", "out_bytes", "purged_packets", "purged_bytes"),
    *("discarded_packets", "flushed_packets", "leaked_packets"),
)
ARRAYS = {"ports": PORT_FIELDS, "ingresses": INGRESS_FIELDS, "egresses": EGRESS_FIELDS}
PINS = (*ARRAYS, "events", "evaluate")

XOFF, XON, PAUSED = 1, 2, 3
"""What an event says: a threshold crossed, either way, and a pause frame that arrived."""


class PauseEvent(NamedTuple):
    """`t_ns` is CLOCK_MONOTONIC; `crossed_ns`, of a pause frame, when its sender crossed its
    threshold, or the frame's arrival if it announces no such thing."""

    what: int
    slot: int
    traffic_class: int
    quanta: int
    t_ns: int
    crossed_ns: int


def held_now(held: int, held_ns: int, drain: int, now_ns: int) -> int:
    """Bytes in a NIC's receive buffer, which drains without an event (`held_now` of
    rocelab/dataplane/bpf/pfc.bpf.c); none where the host takes packets as they come (drain 0),
    whatever was held before."""
    if not drain:
        return 0
    return max(0, held - max(0, now_ns - held_ns) * drain // 10**9)


class PauseTable(Closing):
    """An array of the program in memory: a word by its index and name."""

    def __init__(self, descriptor: int, fields: tuple[str, ...], *, writable: bool) -> None:
        self.fields = fields
        self._place = {name: place for place, name in enumerate(fields)}
        self._row = Struct(f"={len(fields)}q")
        self._stride = self._row.size
        entries = bpf.max_entries(descriptor)
        self.entries = entries
        size = -(-entries * self._stride // mmap.PAGESIZE) * mmap.PAGESIZE
        rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        self._memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED, rights)
        self._words = memoryview(self._memory).cast("q")

    def close(self) -> None:
        self._words.release()
        self._memory.close()

    def get(self, index: int, name: str) -> int:
        """A word now."""
        return self._words[index * len(self.fields) + self._place[name]]

    def set(self, index: int, name: str, value: int) -> None:
        """Write a word, at once."""
        self._words[index * len(self.fields) + self._place[name]] = value

    def row(self, index: int) -> dict[str, int]:
        """An entry's words by name."""
        words = self._row.unpack_from(self._memory, index * self._stride)
        return dict(zip(self.fields, words, strict=True))


class PauseMaps(Closing):
    """The pinned maps of a lab with lossless classes."""

    def __init__(self, folder: Path, *, writable: bool = False) -> None:
        """Open the pins in `folder`. Raises BpfError if there are none."""
        self._pinned = bpf.Pinned(folder, PINS)
        tables = {
            name: PauseTable(self._pinned[name], fields, writable=writable)
            for name, fields in ARRAYS.items()
        }
        self.ports, self.ingresses, self.egresses = tables.values()

    def close(self) -> None:
        for table in (self.ports, self.ingresses, self.egresses):
            table.close()
        self._pinned.close()

    def evaluate(self) -> None:
        """Resume each port that may: thresholds rise as others' packets leave. Raises BpfError."""
        bpf.run(self._pinned["evaluate"])

    def events(self) -> Events:
        """The events from now on, for one reader."""
        return Events(self._pinned["events"])


class Events(Closing):
    """Reads a BPF ring buffer (Linux Documentation/bpf/ringbuf.rst)."""

    _EVENT = Struct("=IHBxQQQ")
    _HEADER = Struct("=II")
    _POSITION = Struct("=Q")
    _BUSY, _DISCARDED = 1 << 31, 1 << 30

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._size = bpf.max_entries(descriptor)
        self._consumer = mmap.mmap(
            descriptor, mmap.PAGESIZE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
        )
        self._consumed = memoryview(self._consumer).cast("Q")
        # The data is mapped twice in a row: a record never wraps.
        self._producer = mmap.mmap(
            descriptor,
            mmap.PAGESIZE + 2 * self._size,
            mmap.MAP_SHARED,
            mmap.PROT_READ,
            offset=mmap.PAGESIZE,
        )

    def fileno(self) -> int:
        """Readable when an event has come."""
        return self._descriptor

    def close(self) -> None:
        self._consumed.release()
        self._consumer.close()
        self._producer.close()
        os.close(self._descriptor)

    def read(self) -> Iterator[PauseEvent]:
        """Every waiting event."""
        at = self._consumed[0]
        while at < self._POSITION.unpack_from(self._producer)[0]:
            place = mmap.PAGESIZE + (at & (self._size - 1))
            length, _ = self._HEADER.unpack_from(self._producer, place)
            if length & self._BUSY:
                return
            event = PauseEvent(*self._EVENT.unpack_from(self._producer, place + self._HEADER.size))
            discarded = length & self._DISCARDED
            at += (length & ~self._DISCARDED) + self._HEADER.size + 7 & ~7
            self._consumed[0] = at
            if not discarded:
                yield event
