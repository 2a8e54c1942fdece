"""The receiving half of a reliable queue pair: packets in order, acknowledged, each once.

It takes the requester's packets as they arrive, and returns the acknowledgement that is due and the
complete messages. RC semantics at packet level (InfiniBand Architecture Specification 9.7.4): only
the expected PSN is taken; a later one causes one NAK until the gap is closed, an earlier one is a
duplicate and acknowledged again. `rocelab.agent.rc.reordering` has the responder that accepts any
order. Pure: no socket, no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.agent.rc.frames import unwrapped
from rocelab.wire.headers import PSN_MASK, NakCode, Syndrome

ACK = Syndrome.ack().byte
NAK_SEQUENCE = Syndrome.nak(NakCode.PSN_SEQUENCE_ERROR).byte
NO_IMM = -1
_MSN_MASK = 0xFFFFFF

Complete = tuple[int, int]
"""A complete message: its immediate, or NO_IMM, and its bytes."""


@dataclass(slots=True)
class ResponderCounters:
    """Counters of a responder. `packets` counts packets taken, each once, and `bytes` their
    payload; `ce` counts all packets with a congestion mark, taken or not."""

    packets: int = 0
    bytes: int = 0
    messages: int = 0
    out_of_order: int = 0
    """Came before an earlier one."""
    duplicates: int = 0
    ce: int = 0
    naks: int = 0
    cnps: int = 0
    discarded: int = 0
    """Not taken though new. If any order is accepted, `reordered` are those that came after a later
    one (RFC 4737 section 3.3), and `reorder_extent` is the most packets by which one was late
    (section 4.2.3)."""
    reordered: int = 0
    reorder_extent: int = 0


class Responder:
    """Takes the packets of the requester at the other end."""

    __slots__ = ("_discarded", "_expected", "_message_bytes", "_nak_sent", "ack_due", "counters")

    def __init__(self, first_psn: int = 0) -> None:
        self._expected = first_psn
        self._discarded = first_psn - 1
        self._message_bytes = 0
        self._nak_sent = False
        self.ack_due = 0
        """The syndrome of the acknowledgement that is due, 0 for none (an ACK's is not 0)."""
        self.counters = ResponderCounters()

    def receive(
        self, psn: int, ack_requested: bool, payload_bytes: int, last: bool, imm: int
    ) -> Sequence[Complete]:
        """Take a packet, with its immediate or NO_IMM; return the messages that it completes, in
        sending order."""
        counters = self.counters
        ahead = unwrapped(psn, self._expected) - self._expected
        if ahead == 0:
            self._expected += 1
            counters.packets += 1
            counters.bytes += payload_bytes
            self._message_bytes += payload_bytes
            self._nak_sent = False
            if ack_requested or self.ack_due:
                # An unsent NAK stays due if later packets came before this one and were discarded:
                # it then requests those.
                if self.ack_due == NAK_SEQUENCE and self._expected <= self._discarded:
                    self._nak_sent = True
                else:
                    self.ack_due = ACK
            if last:
                counters.messages += 1
                complete, self._message_bytes = self._message_bytes, 0
                return ((imm, complete),)
        elif ahead > 0:
            counters.out_of_order += 1
            counters.discarded += 1
            self._discarded = max(self._discarded, self._expected + ahead)
            if not self._nak_sent:
                self._nak_sent = True
                counters.naks += 1
                self.ack_due = NAK_SEQUENCE
        else:
            counters.duplicates += 1
            if ack_requested and self.ack_due != NAK_SEQUENCE:
                self.ack_due = ACK
        return ()

    def acknowledgement(self) -> tuple[int, int]:
        """The PSN and the AETH (syndrome and message sequence number) of the pending
        acknowledgement, which this clears. A NAK names the expected packet, an ACK the one before
        it."""
        syndrome, self.ack_due = self.ack_due, 0
        psn = self._expected if syndrome == NAK_SEQUENCE else self._expected - 1
        return psn & PSN_MASK, syndrome << 24 | self.counters.messages & _MSN_MASK
