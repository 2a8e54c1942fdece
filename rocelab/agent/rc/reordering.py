"""The receiving half of a queue pair whose packets may arrive in any order.

It takes the requester's packets as they arrive, and returns the acknowledgement that is due, the
complete messages, and how far out of order packets came. For NICs that accept sprayed traffic:
ConnectX-5 and later place RDMA WRITEs of reliable connections as they come (NVIDIA,
"Out-of-Order Data Placement"). Acknowledgements stay cumulative, and messages complete in the order
of their sending, each when all its packets and those of all earlier messages have arrived.

A gap causes no NAK: the missing packet may be lost or on a longer path, and no distance tells
which. On sprayed paths the distance is the difference of their queues, which may be more than a
window. So only the requester's ACK timeout detects a loss. The requester then goes back to the gap,
and its first copy that arrives acknowledges everything that had arrived after the gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rocelab.agent.rc.frames import unwrapped
from rocelab.agent.rc.responder import ACK, Complete, Responder

_Early = tuple[int, bool, int, bool]
"""A packet after a gap: payload bytes, whether it ends a message, immediate, whether it requests an
acknowledgement."""


class ReorderingResponder(Responder):
    """Takes the requester's packets in any order within its window."""

    __slots__ = ("_early", "_highest", "_places", "_records", "_window")

    def __init__(self, window: int, first_psn: int = 0) -> None:
        """`window`: the most packets that the requester has in flight."""
        super().__init__(first_psn)
        self._window = window
        self._early: dict[int, _Early] = {}
        self._highest = first_psn - 1
        self._records: list[int] = []
        """PSNs of packets after the gap that were higher than all before them, in order of
        arrival."""
        self._places: list[int] = []
        """The number of packets taken when each of these arrived."""

    def receive(
        self, psn: int, ack_requested: bool, payload_bytes: int, last: bool, imm: int
    ) -> Sequence[Complete]:
        """Take a packet, with its immediate or NO_IMM; return the messages that it completes, in
        sending order."""
        counters = self.counters
        number = unwrapped(psn, self._expected)
        ahead = number - self._expected
        if ahead < 0 or number in self._early:
            counters.duplicates += 1
            if ack_requested and ahead < 0:
                self.ack_due = ACK
            elif ack_requested:
                size, ends, carried, _ = self._early[number]
                self._early[number] = (size, ends, carried, True)
            return ()
        if ahead >= self._window:
            counters.discarded += 1
            return ()
        counters.packets += 1
        counters.bytes += payload_bytes
        self._measure(number, ahead)
        packet = (payload_bytes, last, imm, ack_requested)
        if ahead:
            counters.out_of_order += 1
            self._early[number] = packet
            return ()
        return self._close(packet)

    def _measure(self, number: int, ahead: int) -> None:
        """Count a packet's lateness since the first packet that should have come after it (RFC 4737
        section 4.2.3); copies do not count, and a retransmission after a loss is late as well."""
        counters = self.counters
        if number > self._highest:
            self._highest = number
            if ahead:
                self._records.append(number)
                self._places.append(counters.packets)
        else:
            counters.reordered += 1
            first_later = self._places[bisect_right(self._records, number)]
            counters.reorder_extent = max(counters.reorder_extent, counters.packets - first_later)

    def _close(self, packet: _Early | None) -> Sequence[Complete]:
        """Take the expected packet and all that follow it without a further gap."""
        complete: list[Complete] = []
        while packet is not None:
            payload_bytes, last, imm, ack_requested = packet
            self._expected += 1
            self._message_bytes += payload_bytes
            if ack_requested:
                self.ack_due = ACK
            if last:
                self.counters.messages += 1
                complete.append((imm, self._message_bytes))
                self._message_bytes = 0
            packet = self._early.pop(self._expected, None)
        if len(self._records) > 2 * self._window or not self._early:
            # Missing packets are after the gap's start: earlier records do not matter for them.
            past = bisect_right(self._records, self._expected)
            del self._records[:past], self._places[:past]
        return complete
