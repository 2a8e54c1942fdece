"""What a server's agent has sent and received at instants 10 ms apart, for who watches a run.

Probes are counted by their stamps. Queue pairs have none: an agent that has some looks at its
counters at each instant. The newest instants follow the record of a server's file
(`rocelab.agent.live`). Standard library only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from struct import Struct
from time import CLOCK_REALTIME, clock_gettime_ns
from zlib import crc32

from rocelab.agent.demux import ProbeLog
from rocelab.agent.nic import NEVER_NS
from rocelab.agent.prober import ProbeFlow
from rocelab.agent.rc.queue_pair import QueuePair

TICK_NS = 10_000_000
MOST_TICKS = 256
"""Instants in a file: over two seconds, and a server reads it twice a second."""
LATE_NS = 20_000_000
"""Probes that arrived so long ago have been read."""
PAIRS_PER_TICK = 64
"""With more queue pairs instants are further apart: to look at so many takes some 50 us."""

_RECORD = Struct("=4QI")


@dataclass(frozen=True, slots=True)
class Tick:
    """Packets up to an instant: data packets of queue pairs and probes."""

    time_ns: int
    """CLOCK_REALTIME."""
    sent: int
    received: int
    retransmitted: int


def packed(tick: Tick) -> bytes:
    """The record of a file."""
    body = _RECORD.pack(*astuple(tick), 0)[: -Struct("I").size]
    return body + crc32(body).to_bytes(4, "little")


def unpacked(content: bytes) -> tuple[Tick, ...]:
    """The instants in what follows a file's record, in order of time, without half-written ones."""
    records = (content[at : at + _RECORD.size] for at in range(0, len(content), _RECORD.size))
    ticks = [
        Tick(*_RECORD.unpack(record)[:-1])
        for record in records
        if len(record) == _RECORD.size and crc32(record[:-4]).to_bytes(4, "little") == record[-4:]
    ]
    return tuple(sorted(ticks, key=lambda tick: tick.time_ns))


class Ticks:
    """The newest instants of an agent."""

    def __init__(
        self, pairs: Sequence[QueuePair], flows: Sequence[ProbeFlow], log: ProbeLog
    ) -> None:
        self.due_ns = 0 if pairs else NEVER_NS
        """When queue pairs are to be looked at, CLOCK_MONOTONIC."""
        self._pairs = pairs
        self._flows = flows
        self._log = log
        self._records: deque[bytes] = deque(maxlen=MOST_TICKS)
        self._seen = [0] * len(flows)
        self._arrived = 0
        self._sent: dict[int, int] = {}
        self._received: dict[int, int] = {}
        self._next = 0
        self._totals = (0, 0)

    def sample(self, now_ns: int) -> None:
        """Look at the queue pairs' counters; `now_ns` is CLOCK_MONOTONIC."""
        requesters = [pair.requester.counters for pair in self._pairs]
        tick = Tick(
            clock_gettime_ns(CLOCK_REALTIME),
            sum([requester.packets for requester in requesters])
            + sum([len(flow.sent_ns) for flow in self._flows]),
            sum([pair.responder.counters.packets for pair in self._pairs]) + len(self._log.flow),
            sum([requester.retransmitted for requester in requesters]),
        )
        self._records.append(packed(tick))
        self.due_ns = now_ns + TICK_NS * -(-len(self._pairs) // PAIRS_PER_TICK)

    def content(self) -> bytes:
        """What follows the record of the file."""
        if not self._pairs:
            self._count_probes(clock_gettime_ns(CLOCK_REALTIME))
        return b"".join(self._records)

    def _count_probes(self, now_ns: int) -> None:
        """Add the instants up to LATE_NS ago; `now_ns` is CLOCK_REALTIME, as stamps are."""
        for place, flow in enumerate(self._flows):
            _add(self._sent, flow.sent_ns[self._seen[place] :], self._next)
            self._seen[place] = len(flow.sent_ns)
        arrived = self._log.receive_ns[self._arrived :]
        _add(self._received, arrived, self._next)
        self._arrived += len(arrived)
        end = (now_ns - LATE_NS) // TICK_NS
        counted = min((*self._sent, *self._received), default=end)
        for number in range(max(self._next or counted, end - MOST_TICKS), end):
            sent, received = self._totals
            self._totals = (
                sent + self._sent.pop(number, 0),
                received + self._received.pop(number, 0),
            )
            self._records.append(packed(Tick((number + 1) * TICK_NS, *self._totals, 0)))
        self._next = max(self._next, end)


def _add(counts: dict[int, int], stamps: Sequence[int], first: int) -> None:
    """Count stamps by the number of their interval, late ones in the `first`."""
    for stamp_ns in stamps:
        number = max(stamp_ns // TICK_NS, first)
        counts[number] = counts.get(number, 0) + 1
