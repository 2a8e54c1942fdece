"""Fakes for the transport engine: an interface, a ring, a link in virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from rocelab.agent.nic import BATCH, AgentNic
from rocelab.agent.rc.frames import ip_checksum
from rocelab.agent.rc.queue_pair import QueuePairSettings
from rocelab.agent.rc.requester import RequesterSettings
from rocelab.base.family import Family
from rocelab.jobs.flow import Endpoints
from rocelab.traffic.roce import Envelope, roce_frame
from rocelab.wire.headers import IP_OFFSET, OFFSETS, UDP_OFFSET, Opcode, family_of
from tests.helpers.roce_packets import ENVELOPE_4, ENVELOPE_6

MS = 10**6
SLOT_BYTES = 8192
DATA_TOS = 26 << 2 | 0b10
ACK_TOS = 46 << 2 | 0b10
CNP_TOS = 48 << 2 | 0b10
ENVELOPES = {Family.IPV4: ENVELOPE_4, Family.IPV6: ENVELOPE_6}
ENDPOINTS = {
    family: Endpoints(
        source="srv1-1",
        interface="rtsw1",
        destination="srv2-1",
        source_mac=ends.source_mac,
        next_hop_mac=ends.next_hop_mac,
        source_ip=ends.source_ip,
        destination_ip=ends.destination_ip,
        mtu=9000,
    )
    for family, ends in ENVELOPES.items()
}


def envelope(
    dest_qp: int = ENVELOPE_4.dest_qp, tos: int = DATA_TOS, family: Family = Family.IPV4
) -> Envelope:
    return replace(ENVELOPES[family], dest_qp=dest_qp, dscp=tos >> 2, ecn=tos & 0b11)


@cache
def header(dest_qp: int = ENVELOPE_4.dest_qp, family: Family = Family.IPV4) -> bytes:
    """The header of a queue pair's frames, as sessions make it."""
    frame = roce_frame(envelope(dest_qp, family=family), Opcode.RC_SEND_MIDDLE, psn=0)
    return frame[: OFFSETS[family].payload]


def requester_settings(**changes: int) -> RequesterSettings:
    values = {
        "mtu": 1024,
        "window": 64,
        "ack_every": 16,
        "ack_timeout_ns": MS,
        "retries": 3,
        "tos": DATA_TOS,
    }
    return RequesterSettings(**(values | changes))


def pair_settings(**changes: int) -> QueuePairSettings:
    return QueuePairSettings(requester_settings(**changes), ACK_TOS, CNP_TOS, dcqcn=None)


class FakeOutlet:
    """An interface that keeps sent frames; `refuse` gives the indexes of a batch that it
    refuses."""

    def __init__(self, on_flush: Callable[[list[bytes]], None] = lambda frames: None) -> None:
        self._on_flush = on_flush
        self._taken: list[bytes] = []
        self.sent: list[bytes] = []
        self.batches: list[int] = []
        self.refuse: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self._taken)

    def append(self, frame: bytes | bytearray) -> None:
        assert len(self._taken) < BATCH
        self._taken.append(bytes(frame))

    def flush(self) -> list[int]:
        taken, self._taken = self._taken, []
        left = [frame for place, frame in enumerate(taken) if place not in self.refuse]
        self.batches.append(len(taken))
        self.sent += left
        self._on_flush(left)
        return [place for place in self.refuse if place < len(taken)]


class FakeRing:
    """A ring with the tests' frames."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(SLOT_BYTES))
        self._waiting: list[tuple[bytes, int, int]] = []

    def put(self, frame: bytes, seconds: int = 0, nanoseconds: int = 0) -> None:
        self._waiting.append((frame, seconds, nanoseconds))

    def frames(self) -> Iterator[tuple[int, int, int]]:
        """Every frame in turn, always in the same slot, so that the next one overwrites it."""
        waiting, self._waiting = self._waiting, []
        at = 82
        for frame, seconds, nanoseconds in waiting:
            self.memory[at : at + len(frame)] = frame
            yield at, seconds, nanoseconds
            self.memory[:] = b"\xa5" * SLOT_BYTES


def marked(frame: bytes) -> bytes:
    """The frame as a congested switch forwards it: with CE and the right IP checksum."""
    data = bytearray(frame)
    if family_of(frame) is Family.IPV6:
        data[IP_OFFSET + 1] |= 0b11 << 4
        return bytes(data)
    data[IP_OFFSET + 1] |= 0b11
    data[IP_OFFSET + 10 : IP_OFFSET + 12] = b"\0\0"
    checksum = ip_checksum(data[IP_OFFSET:UDP_OFFSET])
    data[IP_OFFSET + 10 : IP_OFFSET + 12] = checksum.to_bytes(2, "big")
    return bytes(data)


class Copy(NamedTuple):
    """One copy of a frame that gets through."""

    delay_ns: int
    is_marked: bool = False


Fate = tuple[Copy, ...]
"""The copies of a frame that arrive: none is a loss, two are a duplicate."""

UNHARMED: Fate = (Copy(10_000),)


class Link:
    """One direction between two NICs in virtual time: each frame gets the next fate.

    After the last fate the first follows again if `repeats`; else all further frames arrive.
    """

    def __init__(self, fates: Sequence[Fate], repeats: bool) -> None:
        self._fates = fates
        self._repeats = repeats
        self._under_way: list[tuple[int, int, bytes]] = []
        self._entered = 0
        self.copies = 0
        self.now_ns = 0

    def enter(self, frames: list[bytes]) -> None:
        for frame in frames:
            for copy in self._fate():
                carried = marked(frame) if copy.is_marked else frame
                self.copies += 1
                arrival = (self.now_ns + copy.delay_ns, self.copies, carried)
                heapq.heappush(self._under_way, arrival)

    def _fate(self) -> Fate:
        place, self._entered = self._entered, self._entered + 1
        if not self._fates or (place >= len(self._fates) and not self._repeats):
            return UNHARMED
        return self._fates[place % len(self._fates)]

    @property
    def next_ns(self) -> int | None:
        return self._under_way[0][0] if self._under_way else None

    def leave(self, ring: FakeRing) -> None:
        """Put all frames that have arrived by now into the ring."""
        while self._under_way and self._under_way[0][0] <= self.now_ns:
            ring.put(heapq.heappop(self._under_way)[2])


def nic(outlet: FakeOutlet, rate_bps: float = 1e9, frame_bytes: int = 1082) -> AgentNic:
    return AgentNic(outlet, rate_bps, frame_bytes)  # type: ignore[arg-type]
