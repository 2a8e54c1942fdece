"""Queue pairs of the plain simulator that send again only what is missing: the lab's, but for that.

A NAK says how far ahead the packet was that caused it, where an ACK of the lab counts messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rocelab.agent.rc.frames import unwrapped
from rocelab.agent.rc.reordering import ReorderingResponder
from rocelab.agent.rc.requester import NEVER_NS, Batch, Requester, RequesterSettings
from rocelab.agent.rc.responder import ACK, NAK_SEQUENCE, Complete
from rocelab.wire.headers import PSN_MASK


class SelectiveResponder(ReorderingResponder):
    ahead = 0

    def receive(
        self, psn: int, ack_requested: bool, payload_bytes: int, last: bool, imm: int
    ) -> Sequence[Complete]:
        complete = super().receive(psn, ack_requested, payload_bytes, last, imm)
        self.ahead = unwrapped(psn, self._expected) - self._expected
        if self.ahead > 0:
            self.ack_due = NAK_SEQUENCE
        return complete

    def acknowledgement(self) -> tuple[int, int]:
        is_nak = self.ack_due == NAK_SEQUENCE
        psn, aeth = super().acknowledgement()
        return psn, NAK_SEQUENCE << 24 | self.ahead if is_nak else aeth


class SelectiveRequester(Requester):
    """`next` is always new; what is to be sent again is in `lost`."""

    def __init__(self, header: bytes, settings: RequesterSettings) -> None:
        super().__init__(header, settings)
        self.lost: set[int] = set()
        self.named: set[int] = set()
        self.sent_again: set[int] = set()
        self.ahead = 0

    @property
    def sendable(self) -> bool:
        return super().sendable or (bool(self.lost) and self.error is None)

    def emit(self, batch: Batch, limit: int, now_ns: int) -> int:
        assert limit == 1
        if not self.lost:
            return super().emit(batch, limit, now_ns)
        psn, new, asked, settings = min(self.lost), self.next, self._asked, self.settings
        self.lost.remove(psn)
        self.sent_again.add(psn)
        self.next, self._index, self._asked, self.deadline_ns = psn, 0, -1, NEVER_NS
        self.settings = replace(settings, ack_every=1)
        size = super().emit(batch, limit, now_ns)
        self.next, self._index, self._asked, self.settings = new, 0, max(asked, psn), settings
        return size

    def on_ack(self, psn: int, syndrome: int, now_ns: int) -> list[int]:
        if syndrome == ACK:
            done = super().on_ack(psn, ACK, now_ns)
        else:
            asked_for = unwrapped(psn, self.una)
            if asked_for < self.una or self.error is not None:
                return []
            self.counters.naks += 1
            done = super().on_ack(psn - 1 & PSN_MASK, ACK, now_ns)
            self.named.add(asked_for + self.ahead)
            self.lost |= set(range(self.una, asked_for + self.ahead)) - self.sent_again
        self.lost = {number for number in self.lost - self.named if number >= self.una}
        return done

    def on_timer(self) -> None:
        super().on_timer()
        self.next = self.highest
        self.sent_again.clear()
        self.lost = set(range(self.una, self.highest)) - self.named
