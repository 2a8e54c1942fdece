"""Sorts the frames that arrive at a server into packets of its queue pairs and probes.

Reads frames from a ring, calls the queue pairs, logs the probes, and counts the frames that a NIC
would drop: those with a wrong ICRC, and those for no queue pair of this server. Fields that are the
same in every packet of a kind (addresses, lengths, opcode, destination QP, marks) are read once;
each further packet costs a look-up and its ICRC.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from zlib import crc32

from rocelab.agent.rc.queue_pair import QueuePair
from rocelab.agent.rc.responder import NO_IMM
from rocelab.base.family import Family
from rocelab.linux.ring import PacketRing
from rocelab.wire.headers import (
    ICRC_BYTES,
    IP_OFFSET,
    OFFSETS,
    PSN_MASK,
    Opcode,
    extension_bytes,
    has_imm,
    hop_limit,
    is_last,
    is_marked,
)
from rocelab.wire.icrc import crc_before_psn, icrc_is_right, packet_end
from rocelab.wire.probe import MAGIC, PROBE_HEADER

SECOND_NS = 10**9
MAX_KINDS = 65536

_PSN = Struct("!I")
_ICRC = Struct("<I")
_ACK_REQUEST = 1 << 31
_DATA = range(Opcode.RC_SEND_FIRST, Opcode.RC_WRITE_ONLY_WITH_IMM + 1)


class _Action(IntEnum):
    DATA = 0
    ACK = 1
    CNP = 2
    PROBE = 3


_ANSWERS = {int(Opcode.RC_ACKNOWLEDGE): _Action.ACK, int(Opcode.CNP): _Action.CNP}


@dataclass(frozen=True, slots=True)
class _Kind:
    """The common fields of all frames with the same bytes up to the PSN; offsets are in the
    frame."""

    action: _Action
    crc: int
    icrc_offset: int
    payload_bytes: int
    last: bool
    imm_offset: int
    marked: bool
    ttl: int
    queue_pair: QueuePair | None


class ProbeLog:
    """Every probe that arrived, one value per probe and column, in arrival order.

    Times are CLOCK_REALTIME nanoseconds.
    """

    def __init__(self) -> None:
        self.flow = array("I")
        self.sequence = array("q")
        self.send_ns = array("q")
        self.receive_ns = array("q")
        self.ttl = array("B")

    def columns(self) -> list[bytes]:
        """Flow, sequence, send time, receive time and TTL, packed in the machine's order."""
        columns = (self.flow, self.sequence, self.send_ns, self.receive_ns, self.ttl)
        return [column.tobytes() for column in columns]


OnMessage = Callable[[QueuePair, int, int, int], None]
"""Called with the queue pair, the immediate and the bytes of a complete message, and the time."""

OnOver = Callable[[QueuePair, int, int], None]
"""Called with the queue pair, the immediate of an acknowledged message, and the time."""


class Demux:
    """Passes arrived packets to their queue pairs and probes to the log."""

    def __init__(
        self,
        ring: PacketRing,
        family: Family,
        queue_pairs: Mapping[int, QueuePair],
        on_message: OnMessage,
        on_over: OnOver,
    ) -> None:
        """`family` of the ring's frames; `queue_pairs` by their own number."""
        self._ring = ring
        self._family = family
        self._offsets = OFFSETS[family]
        self._queue_pairs = queue_pairs
        self._on_message = on_message
        self._on_over = on_over
        self._kinds: dict[bytes, _Kind] = {}
        self.probes = ProbeLog()
        self.icrc_errors = 0
        self.unexpected = 0

    def drain(self, now_ns: int) -> int:
        """Read and answer all arrived frames; return their number. `now_ns` is CLOCK_MONOTONIC."""
        memory, kinds = self._ring.memory, self._kinds
        unpack_psn, unpack_icrc = _PSN.unpack_from, _ICRC.unpack_from
        psn_offset, payload_offset = self._offsets.psn, self._offsets.payload
        owing: set[QueuePair] = set()
        taken = 0
        for at, seconds, nanoseconds in self._ring.frames():
            taken += 1
            kind = kinds.get(bytes(memory[at + IP_OFFSET : at + psn_offset]))
            if kind is None:
                kind = self._learn(at)
                if kind is None:
                    continue
            end = at + kind.icrc_offset
            if crc32(memory[at + psn_offset : end], kind.crc) != unpack_icrc(memory, end)[0]:
                self.icrc_errors += 1
                continue
            queue_pair = kind.queue_pair
            if queue_pair is None:
                self._log_probe(at, kind, seconds, nanoseconds)
                continue
            word = unpack_psn(memory, at + psn_offset)[0]
            if kind.action == _Action.DATA:
                imm_offset = kind.imm_offset
                complete = queue_pair.receive(
                    word & PSN_MASK,
                    word >= _ACK_REQUEST,
                    kind.payload_bytes,
                    kind.last,
                    unpack_psn(memory, at + imm_offset)[0] if imm_offset else NO_IMM,
                    kind.marked,
                    now_ns,
                )
                if queue_pair.responder.ack_due:
                    owing.add(queue_pair)
                for imm, size_bytes in complete:
                    if imm != NO_IMM:
                        self._on_message(queue_pair, imm, size_bytes, now_ns)
            elif kind.action == _Action.ACK:
                syndrome = memory[at + payload_offset]
                for imm in queue_pair.on_ack(word & PSN_MASK, syndrome, now_ns):
                    self._on_over(queue_pair, imm, now_ns)
            else:
                queue_pair.on_cnp(now_ns)
        for queue_pair in owing:
            queue_pair.answer()
        return taken

    def _log_probe(self, at: int, kind: _Kind, seconds: int, nanoseconds: int) -> None:
        _, flow, sequence, send_ns = PROBE_HEADER.unpack_from(
            self._ring.memory, at + self._offsets.payload
        )
        log = self.probes
        log.flow.append(flow)
        log.sequence.append(sequence)
        log.send_ns.append(send_ns)
        log.receive_ns.append(seconds * SECOND_NS + nanoseconds)
        log.ttl.append(kind.ttl)

    def _learn(self, at: int) -> _Kind | None:
        """The kind of a frame seen for the first time; None if a NIC would drop it."""
        memory, offsets = self._ring.memory, self._offsets
        frame = bytes(memory[at : at + packet_end(memory[at : at + offsets.udp], self._family)])
        if not icrc_is_right(frame):
            self.icrc_errors += 1
            return None
        opcode = frame[offsets.bth]
        number = int.from_bytes(frame[offsets.bth + 5 : offsets.psn], "big")
        queue_pair = self._queue_pairs.get(number)
        action = _action(frame, offsets.payload, opcode, queue_pair)
        if action is None:
            self.unexpected += 1
            return None
        extensions = extension_bytes(opcode)
        pad = frame[offsets.bth + 1] >> 4 & 0b11
        payload_bytes = len(frame) - offsets.payload - extensions - pad - ICRC_BYTES
        if payload_bytes < 0:
            self.unexpected += 1
            return None
        kind = _Kind(
            action=action,
            crc=crc_before_psn(frame),
            icrc_offset=len(frame) - ICRC_BYTES,
            payload_bytes=payload_bytes,
            last=is_last(opcode),
            imm_offset=offsets.payload + extensions - 4 if has_imm(opcode) else 0,
            marked=is_marked(frame, self._family),
            ttl=hop_limit(frame, self._family),
            queue_pair=None if action is _Action.PROBE else queue_pair,
        )
        if len(self._kinds) < MAX_KINDS:
            self._kinds[frame[IP_OFFSET : offsets.psn]] = kind
        return kind


def _action(
    frame: bytes, payload: int, opcode: int, queue_pair: QueuePair | None
) -> _Action | None:
    """`payload` is where the payload starts."""
    # Probes first: their destination QPs are random and may equal those of queue pairs.
    has_magic = frame[payload : payload + 4] == MAGIC.to_bytes(4, "big")
    has_room = len(frame) >= payload + PROBE_HEADER.size + ICRC_BYTES
    if opcode == Opcode.RC_SEND_ONLY and has_magic and has_room:
        return _Action.PROBE
    if queue_pair is None:
        return None
    return _Action.DATA if opcode in _DATA else _ANSWERS.get(opcode)
