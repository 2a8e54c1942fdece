"""Counters of the queues of switch ports: the types that every engine fills in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Place = tuple[str, str]
"""A port: node and interface."""


@dataclass(frozen=True, slots=True)
class DepthCounters:
    """The depths of a queue when packets arrived, which only the engine `bpf` sees.

    `packets` and `marked` have an entry per bin of `QueuePlan.bin_edges_bytes`. A depth is the
    bytes of the frames ahead of the packet, not its own.
    """

    max_bytes: int
    """Since jobs last began, the others since the port was created."""
    sum_bytes: int
    packets: tuple[int, ...]
    marked: tuple[int, ...]

    @property
    def mean_bytes(self) -> float:
        """Mean depth over packets; 0 without packets."""
        packets = sum(self.packets)
        return self.sum_bytes / packets if packets else 0.0


@dataclass(frozen=True, slots=True)
class OtherCounters:
    """What of a queue's packets was not RoCEv2 over IPv4, which only the engine `bpf` sees."""

    tcp: int = 0
    """Packets by protocol."""
    udp: int = 0
    """Packets by protocol."""
    icmp: int = 0
    """Packets by protocol."""
    rest: int = 0
    """Packets by protocol."""
    bytes: int = 0
    marked: int = 0
    ce_out: int = 0
    dropped_packets: int = 0
    dropped_bytes: int = 0
    held_max_bytes: int = 0
    """In the queue at once, since jobs last began; none was there longer than since the queue was
    last empty, so they may have been fewer."""
    crowded_out: int = 0
    """RoCEv2 packets that would not have been dropped, had no others been in the port."""


@dataclass(frozen=True, slots=True)
class QueueCounters:
    """A queue since its port was created. Bytes are those of frames without FCS."""

    packets: int
    """Passed the buffer's limit (with engine `red`: left the queue)."""

    bytes: int
    """As `packets`."""

    marked: int
    """ECN capable and marked here. sch_red counts marks before drops, so that with engine `red` a
    packet may be marked and dropped."""

    dropped_packets: int
    depth_bytes: int
    """The queue at the time of reading."""

    dropped_bytes: int | None
    ce_out: int | None
    """Left with a mark, set here or before."""

    on_arrival: DepthCounters | None
    others: OtherCounters | None = None
    """What of all these was not RoCEv2. None: the engine `red` cannot count it."""


PortCounters = Mapping[Place, Mapping[int, QueueCounters]]
"""Counters by port and traffic class."""
