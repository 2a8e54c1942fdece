"""A reliable queue pair: both halves, its congestion control and its pending answers.

It takes arrived packets and acknowledgements, and gives its NIC data packets when they are due, and
the frames of ACKs, NAKs and CNPs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct

from rocelab.agent.dcqcn import DcqcnParameters, NotificationPoint, ReactionPoint, reaction_point
from rocelab.agent.nic import NEVER_NS, SECOND_NS, WIRE_OVERHEAD_BYTES, AgentNic, FrameOutlet
from rocelab.agent.rc.frames import Template
from rocelab.agent.rc.reordering import ReorderingResponder
from rocelab.agent.rc.requester import Requester, RequesterSettings
from rocelab.agent.rc.responder import Complete, Responder
from rocelab.wire.headers import CNP_PAYLOAD_BYTES, Opcode

_AETH = Struct("!I")


@dataclass(frozen=True, slots=True)
class QueuePairSettings:
    """Settings of all queue pairs of a run, in the lab's clock."""

    requester: RequesterSettings
    ack_tos: int
    """The TOS byte of IPv4, or the traffic class of IPv6, of ACKs and NAKs."""
    cnp_tos: int
    """That of CNPs."""
    dcqcn: DcqcnParameters | None
    """None for off."""
    out_of_order: bool = False
    """Accept packets in any order."""
    traffic_class: int = 0
    """Of data packets."""


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
        "port_moves",
        "rate_limit",
        "requester",
        "responder",
        "traffic_class",
    )

    def __init__(
        self,
        number: int,
        nic: AgentNic,
        header: bytes,
        settings: QueuePairSettings,
        line_rate_bps: float,
    ) -> None:
        """`number` is this end's QP, `header` as of `Template`, to the other end's."""
        self.number = number
        self.nic = nic
        self.active = False
        self.traffic_class = settings.traffic_class
        self.requester = Requester(header, settings.requester)
        self.responder = (
            ReorderingResponder(settings.requester.window) if settings.out_of_order else Responder()
        )
        self.cnps_received = 0
        self.port_moves = 0
        """How often it moved to another port of its NIC."""
        self._ack = Template(header, Opcode.RC_ACKNOWLEDGE, 0, tos=settings.ack_tos)
        self._cnp = Template(header, Opcode.CNP, CNP_PAYLOAD_BYTES, tos=settings.cnp_tos, becn=True)
        self.rate_limit: ReactionPoint | None = None
        self._notification: NotificationPoint | None = None
        if settings.dcqcn is not None:
            self.rate_limit = reaction_point(settings.dcqcn, line_rate_bps)
            self._notification = NotificationPoint(settings.dcqcn.cnp_interval_ns)
        self._sent_ns = 0.0
        self._sent_bits = 0

    def move(self, nic: AgentNic, macs: bytes) -> None:
        """Send by another port of the NIC from now on; frames begin with its addresses."""
        self.port_moves += 1
        was_active = self.active
        self.nic.deactivate(self)
        self.nic = nic
        for template in (self._ack, self._cnp):
            template.readdress(macs)
        self.requester.readdress(macs)
        if was_active:
            nic.activate(self)

    def due_ns(self, now_ns: int) -> int:
        """When window and rate permit the next data packet; NEVER_NS if there is none."""
        if not self.requester.sendable:
            return NEVER_NS
        limit = self.rate_limit
        if limit is None or not self._sent_bits:
            return now_ns
        limit.advance(now_ns)
        return int(self._sent_ns + self._sent_bits * SECOND_NS / limit.rate_bps)

    def emit(self, outlet: FrameOutlet, limit: int, now_ns: int, free_ns: float) -> int:
        """Put up to `limit` packets into `outlet`, one if the rate is limited; return their bytes.

        The link is free since `free_ns`, before now if this machine is late.
        """
        if self.rate_limit is None:
            return self.requester.emit(outlet, limit, now_ns)
        due_ns = self.due_ns(now_ns)
        size = self.requester.emit(outlet, 1, now_ns)
        self.rate_limit.on_sent(size, now_ns)
        # When a punctual machine would have sent it: lateness costs no rate, and neither idle time
        # nor waiting for other queue pairs' packets adds any.
        self._sent_ns = max(float(due_ns), free_ns)
        self._sent_bits = 8 * (size + WIRE_OVERHEAD_BYTES)
        return size

    def receive(
        self,
        psn: int,
        ack_requested: bool,
        payload_bytes: int,
        last: bool,
        imm: int,
        marked: bool,
        now_ns: int,
    ) -> Sequence[Complete]:
        """Take a data packet; return the messages that it completes (`Responder.receive`)."""
        if marked:
            self.responder.counters.ce += 1
            notification = self._notification
            if notification is not None and notification.should_notify(self.number, now_ns):
                self.responder.counters.cnps += 1
                self.nic.control(bytes(self._cnp.stamp(0)))
        return self.responder.receive(psn, ack_requested, payload_bytes, last, imm)

    def answer(self) -> None:
        """Give the NIC the acknowledgement that is due."""
        psn, aeth = self.responder.acknowledgement()
        self.nic.control(bytes(self._ack.stamp(psn, _AETH.pack(aeth))))

    def on_ack(self, psn: int, syndrome: int, now_ns: int) -> list[int]:
        """Take an acknowledgement; return the immediates of the messages that it finishes."""
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
        """Handle the expiry of the local ACK timer."""
        self.requester.on_timer()
        if self.requester.sendable:
            self.nic.activate(self)

    def post(self, size_bytes: int, imm: int) -> None:
        """Write a message to the other end."""
        self.requester.post(size_bytes, imm)
        self.nic.activate(self)
