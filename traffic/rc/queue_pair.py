"""A reliable queue pair: both halves, its congestion control and the answers it owes.

In: packets that arrived for it and acknowledgements. Out: data packets for its NIC when they are
due, and the frames of ACKs, NAKs and CNPs.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct

from traffic.dcqcn import DcqcnParameters, NotificationPoint, ReactionPoint, reaction_point
from traffic.nic import NEVER_NS, SECOND_NS, WIRE_OVERHEAD_BYTES, Nic, Outlet
from traffic.rc.frames import Template
from traffic.rc.requester import Requester, RequesterSettings
from traffic.rc.responder import Responder
from traffic.wire import CNP_PAYLOAD_BYTES, Opcode

_AETH = Struct("!I")


@dataclass(frozen=True, slots=True)
class QueuePairSettings:
    """What all queue pairs of a run have in common, in the lab's clock.

    ack_tos, cnp_tos: the IPv4 TOS byte of ACKs and NAKs, and of CNPs. dcqcn: None for off.
    """

    requester: RequesterSettings
    ack_tos: int
    cnp_tos: int
    dcqcn: DcqcnParameters | None


class QueuePair:
    """One end of a connection between two NICs."""

    __slots__ = (
        "_ack",
        "_cnp",
        "_notification",
        "_sent_bits",
        "_sent_ns",
        "active",
        "cnps_received",
        "nic",
        "number",
        "rate_limit",
        "requester",
        "responder",
    )

    def __init__(
        self,
        number: int,
        nic: Nic,
        header: bytes,
        settings: QueuePairSettings,
        line_rate_bps: float,
    ) -> None:
        """`number` is this end's QP, `header` as of `Template`, to the other end's."""
        self.number = number
        self.nic = nic
        self.active = False
        self.requester = Requester(header, settings.requester)
        self.responder = Responder()
        self.cnps_received = 0
        self._ack = Template(header, Opcode.RC_ACKNOWLEDGE, 0, tos=settings.ack_tos)
        self._cnp = Template(header, Opcode.CNP, CNP_PAYLOAD_BYTES, tos=settings.cnp_tos, becn=True)
        self.rate_limit: ReactionPoint | None = None
        self._notification: NotificationPoint | None = None
        if settings.dcqcn is not None:
            self.rate_limit = reaction_point(settings.dcqcn, line_rate_bps)
            self._notification = NotificationPoint(settings.dcqcn.cnp_interval_ns)
        self._sent_ns = 0.0
        self._sent_bits = 0

    def due_ns(self, now_ns: int) -> int:
        """When the next data packet may go, by window and rate; NEVER_NS where there is none."""
        if not self.requester.sendable:
            return NEVER_NS
        limit = self.rate_limit
        if limit is None or not self._sent_bits:
            return now_ns
        limit.advance(now_ns)
        return int(self._sent_ns + self._sent_bits * SECOND_NS / limit.rate_bps)

    def emit(self, outlet: Outlet, limit: int, now_ns: int, free_ns: float) -> int:
        """Put up to `limit` packets into `outlet`, one where the rate is limited; their bytes.

        The link is free since `free_ns`, before now where this machine is late.
        """
        if self.rate_limit is None:
            return self.requester.emit(outlet, limit, now_ns)
        due_ns = self.due_ns(now_ns)
        size = self.requester.emit(outlet, 1, now_ns)
        self.rate_limit.on_sent(size, now_ns)
        # When a punctual machine would have sent it: being late costs no rate, and neither idleness
        # nor waiting for other queue pairs' packets earns any.
        self._sent_ns = max(float(due_ns), free_ns)
        self._sent_bits = 8 * (size + WIRE_OVERHEAD_BYTES)
        return size

    def receive(
        self,
        psn: int,
        ack_requested: bool,
        payload_bytes: int,
        last: bool,
        marked: bool,
        now_ns: int,
    ) -> int:
        """Take a data packet; the bytes of the message it completes, -1 where it completes none."""
        if marked:
            self.responder.counters.ce += 1
            notification = self._notification
            if notification is not None and notification.should_notify(self.number, now_ns):
                self.responder.counters.cnps += 1
                self.nic.control(bytes(self._cnp.stamp(0)))
        return self.responder.receive(psn, ack_requested, payload_bytes, last)

    def answer(self) -> None:
        """Hand the acknowledgement that is due to the NIC."""
        psn, aeth = self.responder.acknowledgement()
        self.nic.control(bytes(self._ack.stamp(psn, _AETH.pack(aeth))))

    def on_ack(self, psn: int, syndrome: int, now_ns: int) -> list[int]:
        """Take an acknowledgement; the immediates of messages that are over by it."""
        done = self.requester.on_ack(psn, syndrome, now_ns)
        if self.requester.sendable:
            self.nic.activate(self)
        return done

    def on_cnp(self, now_ns: int) -> None:
        """Take a congestion notification."""
        self.cnps_received += 1
        if self.rate_limit is not None:
            self.rate_limit.on_cnp(now_ns)

    def on_timer(self) -> None:
        """The local ACK timer has run out."""
        self.requester.on_timer()
        if self.requester.sendable:
            self.nic.activate(self)

    def post(self, size_bytes: int, imm: int) -> None:
        """Write a message to the other end."""
        self.requester.post(size_bytes, imm)
        self.nic.activate(self)
