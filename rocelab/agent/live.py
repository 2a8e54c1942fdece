"""Publishes the counters of a server's agent while it runs, for other processes.

The counters of its queue pairs and probes are one small record in a file of the lab's folder,
rewritten about five times a second; a checksum detects a half-written record. Counts at instants
follow it if somebody watches the run (`rocelab.agent.ticks`). Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from struct import Struct
from time import CLOCK_REALTIME, clock_gettime_ns, monotonic_ns
from zlib import crc32

from rocelab.agent.demux import Demux
from rocelab.agent.nic import NEVER_NS
from rocelab.agent.prober import ProbeFlow
from rocelab.agent.rc.queue_pair import QueuePair
from rocelab.agent.tcp import TcpPort
from rocelab.agent.ticks import Ticks

PERIOD_NS = 200_000_000
COST_SHARE = 500
"""Writing takes at most 1/COST_SHARE of an agent's time: with many queue pairs the period is
longer."""
LONGEST_NS = 1_000_000_000
"""The longest period; an agent that lost its CPU while it wrote measured too long a time."""


@dataclass(frozen=True, slots=True)
class LiveCounters:
    """A server's counters since its agent started; field order is the record's. Packets of queue
    pairs are data packets."""

    pid: int = 0
    time_ns: int = 0
    """CLOCK_REALTIME when they were written."""

    sent: int = 0
    retransmitted: int = 0
    acked_bytes: int = 0
    timeouts: int = 0
    naks_received: int = 0
    cnps_received: int = 0
    received: int = 0
    out_of_sequence: int = 0
    """Packets that came before an earlier one (queue pairs) or after a later one (probes)."""

    duplicates: int = 0
    ce_received: int = 0
    naks_sent: int = 0
    cnps_sent: int = 0
    icrc_errors: int = 0
    unexpected: int = 0
    probes_sent: int = 0
    probes_refused: int = 0
    probes_received: int = 0


_RECORD = Struct(f"={len(fields(LiveCounters))}QI")
RECORD_BYTES = _RECORD.size
_CHECKSUM_BYTES = 4


def packed(counters: LiveCounters) -> bytes:
    """The record of a file."""
    body = _RECORD.pack(*astuple(counters), 0)[:-_CHECKSUM_BYTES]
    return body + crc32(body).to_bytes(_CHECKSUM_BYTES, "little")


def unpacked(record: bytes) -> LiveCounters | None:
    """The counters of a record, which more may follow; None if it is incomplete."""
    record = record[: _RECORD.size]
    body = record[:-_CHECKSUM_BYTES]
    if crc32(body).to_bytes(_CHECKSUM_BYTES, "little") != record[-_CHECKSUM_BYTES:]:
        return None
    return LiveCounters(*_RECORD.unpack(record)[:-1]) if len(record) == _RECORD.size else None


class LiveFile:
    """Writes an agent's counters when they are due."""

    def __init__(
        self,
        path: str | None,
        pairs: Sequence[QueuePair],
        flows: Sequence[ProbeFlow],
        demux: Demux,
        tcp: TcpPort | None = None,
        *,
        is_watched: bool = False,
    ) -> None:
        """Without a path nothing is ever due. Raises OSError if the file cannot be made."""
        self._ticks = Ticks(pairs, flows, demux.probes) if path and is_watched else None
        self._write_ns = NEVER_NS
        self._pairs = pairs
        self._tcp = tcp
        self._flows = flows
        self._demux = demux
        self._latest: dict[int, int] = {}
        self._probes_seen = 0
        self._late_probes = 0
        if path is not None:
            Path(path).parent.mkdir(mode=0o755, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)
            self._write_ns = 0

    @property
    def due_ns(self) -> int:
        """When `turn` has something to do, CLOCK_MONOTONIC."""
        return self._write_ns if self._ticks is None else min(self._write_ns, self._ticks.due_ns)

    def turn(self, now_ns: int) -> None:
        """Count and write what is due."""
        if self._ticks is not None and now_ns >= self._ticks.due_ns:
            self._ticks.sample(now_ns)
        if now_ns >= self._write_ns:
            self.write(now_ns)

    def write(self, now_ns: int) -> None:
        """Write the present counters; `now_ns` is CLOCK_MONOTONIC."""
        if self._write_ns == NEVER_NS:
            return
        ticks = b"" if self._ticks is None else self._ticks.content()
        os.pwrite(self._file, packed(self._counters()) + ticks, 0)
        took_ns = monotonic_ns() - now_ns
        self._write_ns = now_ns + min(LONGEST_NS, max(PERIOD_NS, COST_SHARE * took_ns))

    def _counters(self) -> LiveCounters:
        self._count_probes()
        requesters = [pair.requester.counters for pair in self._pairs]
        responders = [pair.responder.counters for pair in self._pairs]
        return LiveCounters(
            pid=os.getpid(),
            time_ns=clock_gettime_ns(CLOCK_REALTIME),
            sent=sum([requester.packets for requester in requesters]),
            retransmitted=sum([requester.retransmitted for requester in requesters]),
            acked_bytes=sum([requester.acked_bytes for requester in requesters])
            + (0 if self._tcp is None else self._tcp.delivered_bytes),
            timeouts=sum([requester.timeouts for requester in requesters]),
            naks_received=sum([requester.naks for requester in requesters]),
            cnps_received=sum([pair.cnps_received for pair in self._pairs]),
            received=sum([responder.packets for responder in responders]),
            out_of_sequence=sum([responder.out_of_order for responder in responders])
            + self._late_probes,
            duplicates=sum([responder.duplicates for responder in responders]),
            ce_received=sum([responder.ce for responder in responders]),
            naks_sent=sum([responder.naks for responder in responders]),
            cnps_sent=sum([responder.cnps for responder in responders]),
            icrc_errors=self._demux.icrc_errors,
            unexpected=self._demux.unexpected,
            probes_sent=sum([len(flow.sent_ns) for flow in self._flows]),
            probes_refused=sum([len(flow.refused) for flow in self._flows]),
            probes_received=self._probes_seen,
        )

    def _count_probes(self) -> None:
        """Count the probes since the last call, and those that came after a later one."""
        log, latest = self._demux.probes, self._latest
        seen, end = self._probes_seen, len(log.flow)
        for flow, sequence in zip(log.flow[seen:end], log.sequence[seen:end], strict=True):
            if sequence < latest.get(flow, -1):
                self._late_probes += 1
            else:
                latest[flow] = sequence
        self._probes_seen = end
