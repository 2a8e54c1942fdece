"""The sending half of a reliable queue pair: messages as packets, acknowledged or retransmitted.

From messages to write, acknowledgements and the time it makes the packets of a batch, and finds
which messages are finished. RC semantics at packet level (InfiniBand Architecture Specification
9.7): 24-bit PSNs, packets in flight up to a window, go-back-N on a NAK or when the local ACK timer
runs out, and an error state after too many attempts for a packet. Pure: no socket, no clock.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from dataclasses import dataclass
from struct import Struct
from typing import Protocol

from rocelab.agent.rc.frames import ACK_REQUEST, Template, unwrapped
from rocelab.agent.rc.responder import ACK, NAK_SEQUENCE
from rocelab.wire.headers import PSN_MASK, Opcode

_RETH = Struct("!QII")
_RETH_AND_IMM = Struct("!QIII")
_IMM = Struct("!I")

REMOTE_KEY = 0x526F4345
NEVER_NS = 1 << 62
GAP_NS = 10_000_000
"""A requested acknowledgement that came sooner left no gap."""
MOST_GAPS = 64
"""The gaps of a queue pair that are kept: those with retransmissions, of these and of the rest the
longest."""


class Batch(Protocol):
    """Collects frames to send; it copies each."""

    def append(self, frame: bytes | bytearray) -> None: ...


@dataclass(frozen=True, slots=True)
class RequesterSettings:
    """Settings of a requester; times are in the lab's clock."""

    mtu: int
    window: int
    """Packets in flight at most; below 2^23."""
    ack_every: int
    """Number of packets per requested acknowledgement; the end of each message requests one too."""
    ack_timeout_ns: int
    retries: int
    """How often in a row a packet is retransmitted, after NAK or timeout, before the queue pair
    fails."""
    tos: int


@dataclass(slots=True)
class RequesterCounters:
    """Counters of a requester. `packets` counts every data packet sent, `retransmitted` those of
    them that had been sent before; `acked_bytes` the payload known to have arrived."""

    packets: int = 0
    retransmitted: int = 0
    posted_bytes: int = 0
    acked_bytes: int = 0
    naks: int = 0
    timeouts: int = 0


class RdmaMessage:
    """An RDMA WRITE WITH IMMEDIATE in flight: PSNs `first` to `last`, `size` bytes."""

    __slots__ = ("first", "imm", "last", "size")

    def __init__(self, first: int, last: int, size: int, imm: int) -> None:
        self.first = first
        self.last = last
        self.size = size
        self.imm = imm


class Requester:
    """Writes messages to the queue pair at the other end."""

    __slots__ = (
        "_asked",
        "_header",
        "_index",
        "_messages",
        "_middle",
        "_middle_bytes",
        "_stamps",
        "_templates",
        "_waiting_ns",
        "_waiting_resent",
        "counters",
        "deadline_ns",
        "end",
        "error",
        "gaps",
        "highest",
        "next",
        "retries",
        "rtt_ns",
        "settings",
        "una",
    )

    def __init__(self, header: bytes, settings: RequesterSettings, first_psn: int = 0) -> None:
        """`header` as of `Template`. Raises ValueError if it is no RoCEv2 header."""
        self._header = header
        self.settings = settings
        self._templates: dict[tuple[int, int], Template] = {}
        self._messages: deque[RdmaMessage] = deque()
        self._index = 0
        self._middle = self._template(Opcode.RC_WRITE_MIDDLE, settings.mtu)
        self.una = first_psn
        """The oldest PSN not acknowledged."""
        self.next = first_psn
        """The PSN to send next."""
        self.highest = first_psn
        """One more than any PSN sent so far."""
        self.end = first_psn
        """One more than the last PSN of the last message."""
        self.retries = 0
        self.deadline_ns = NEVER_NS
        """When the local ACK timer runs out. It runs while a requested acknowledgement is due, not
        for packets that request none, which a slow sender may take long to send."""
        self._asked = first_psn - 1
        self.error: str | None = None
        self.counters = RequesterCounters()
        self.rtt_ns = array("q")
        """Round trips of packets that requested an acknowledgement, first copies only."""
        self._stamps: deque[tuple[int, int]] = deque()
        self.gaps: list[tuple[bool, int, int, int]] = []
        """Times for which a requested acknowledgement did not come: whether packets were
        retransmitted meanwhile, how long, from when on, and how many had been before; sorted."""
        self._waiting_ns = NEVER_NS
        self._waiting_resent = 0

    def _template(self, opcode: int, payload_bytes: int) -> Template:
        key = (opcode, payload_bytes)
        template = self._templates.get(key)
        if template is None:
            template = Template(self._header, opcode, payload_bytes, tos=self.settings.tos)
            self._templates[key] = template
        return template

    def readdress(self, macs: bytes) -> None:
        """Send with these Ethernet addresses, destination and source, from now on."""
        self._header = macs + self._header[len(macs) :]
        for template in self._templates.values():
            template.readdress(macs)

    def post(self, size: int, imm: int) -> None:
        """Queue a message of `size` bytes, 0 or more, that ends with the immediate `imm`."""
        packets = max(1, -(-size // self.settings.mtu))
        self._messages.append(RdmaMessage(self.end, self.end + packets - 1, size, imm))
        self.end += packets
        self.counters.posted_bytes += size

    @property
    def idle(self) -> bool:
        """Whether everything posted has been acknowledged."""
        return self.una == self.end

    @property
    def sendable(self) -> bool:
        """Whether there is a packet to send and room for it in the window."""
        return (
            self.next < self.end
            and self.next - self.una < self.settings.window
            and self.error is None
        )

    def emit(self, batch: Batch, limit: int, now_ns: int) -> int:
        """Put up to `limit` packets into `batch`; return their size as frames in bytes, 0 for
        none."""
        settings = self.settings
        end = min(self.end, self.una + settings.window, self.next + limit)
        psn = self.next
        if psn >= end or self.error is not None:
            return 0
        window_end = self.una + settings.window - 1
        ack_every, append, messages = settings.ack_every, batch.append, self._messages
        while messages[self._index].last < psn:
            self._index += 1
        message = messages[self._index]
        total, asked = 0, self._asked
        if psn < self.highest:
            self.counters.retransmitted += min(end, self.highest) - psn
        self.counters.packets += end - psn
        while psn < end:
            word = psn & PSN_MASK
            if psn == message.last or psn % ack_every == ack_every - 1 or psn == window_end:
                word |= ACK_REQUEST
                asked = psn
                if psn >= self.highest:
                    self._stamps.append((psn, now_ns))
            if message.first < psn < message.last:
                frame = self._middle.stamp(word)
            else:
                frame = self._edge(message, psn, word)
            append(frame)
            total += len(frame)
            psn += 1
            if message.last < psn < end:
                self._index += 1
                message = messages[self._index]
        self.next = psn
        self.highest = max(self.highest, psn)
        if asked != self._asked:
            self._asked = asked
            if self._waiting_ns == NEVER_NS:
                self._waiting_ns, self._waiting_resent = now_ns, self.counters.retransmitted
            if self.deadline_ns == NEVER_NS:
                self.deadline_ns = now_ns + settings.ack_timeout_ns
        return total

    def _edge(self, message: RdmaMessage, psn: int, word: int) -> bytearray:
        """The first, last or only packet of a message."""
        mtu = self.settings.mtu
        if message.first == message.last:
            reth = _RETH_AND_IMM.pack(0, REMOTE_KEY, message.size, message.imm)
            return self._template(Opcode.RC_WRITE_ONLY_WITH_IMM, message.size).stamp(word, reth)
        if psn == message.first:
            reth = _RETH.pack(0, REMOTE_KEY, message.size)
            return self._template(Opcode.RC_WRITE_FIRST, mtu).stamp(word, reth)
        rest = message.size - (message.last - message.first) * mtu
        return self._template(Opcode.RC_WRITE_LAST_WITH_IMM, rest).stamp(
            word, _IMM.pack(message.imm)
        )

    def on_ack(self, psn: int, syndrome: int, now_ns: int) -> list[int]:
        """Take an acknowledgement; return the immediates of the messages that it finishes.

        An ACK covers every packet up to its PSN; a NAK for a sequence error covers all before its
        PSN, and requests retransmission from that one on (9.7.5.2.1). rocelab's responder sends
        nothing else; anything else, RNR NAKs included, puts the queue pair in error.
        """
        acked = unwrapped(psn, self.una) + (syndrome == ACK)
        if not self.una <= acked <= self.highest or self.error is not None:
            return []
        done = self._advance(acked, now_ns) if acked > self.una else []
        if syndrome == NAK_SEQUENCE:
            self.counters.naks += 1
            # A copy of a NAK that was already served requests nothing new, and costs no retry.
            if self.next > self.una:
                self._go_back()
        elif syndrome != ACK:
            self._fail(f"the responder answered packet {psn} with syndrome {syndrome:#04x}")
        return done

    def _advance(self, acked: int, now_ns: int) -> list[int]:
        stamps = self._stamps
        while stamps and stamps[0][0] < acked:
            stamped, sent_ns = stamps.popleft()
            if stamped == acked - 1:
                self.rtt_ns.append(now_ns - sent_ns)
        done = []
        messages = self._messages
        while messages and messages[0].last < acked:
            message = messages.popleft()
            self.counters.acked_bytes += message.size - self._acked_of(message)
            done.append(message.imm)
            self._index = max(0, self._index - 1)
            self.una = message.last + 1
        if messages:
            before, self.una = self._acked_of(messages[0]), acked
            self.counters.acked_bytes += self._acked_of(messages[0]) - before
        self.next = max(self.next, acked)
        self.retries = 0
        waiting = self._asked >= acked
        self.deadline_ns = now_ns + self.settings.ack_timeout_ns if waiting else NEVER_NS
        if now_ns - self._waiting_ns >= GAP_NS:
            self._note_gap(now_ns - self._waiting_ns)
        self._waiting_ns = now_ns if waiting else NEVER_NS
        self._waiting_resent = self.counters.retransmitted
        return done

    def _note_gap(self, length_ns: int) -> None:
        before = self._waiting_resent
        resent = self.counters.retransmitted > before
        insort(self.gaps, (resent, length_ns, self._waiting_ns, before))
        del self.gaps[:-MOST_GAPS]

    @property
    def open_gap(self) -> tuple[int, int] | None:
        """Since when a requested acknowledgement has not come, and how many packets had been
        retransmitted by then; None if none is missing."""
        if self._waiting_ns == NEVER_NS:
            return None
        return self._waiting_ns, self._waiting_resent

    def _acked_of(self, message: RdmaMessage) -> int:
        """Bytes of the message before the oldest packet not acknowledged."""
        return min(message.size, max(0, self.una - message.first) * self.settings.mtu)

    def on_timer(self) -> None:
        """Handle the expiry of the local ACK timer: go back to the oldest unacknowledged packet."""
        self.counters.timeouts += 1
        self._go_back()

    def _go_back(self) -> None:
        retries = self.settings.retries
        if self.retries >= retries:
            self._fail(f"packet {self.una & PSN_MASK} was not acknowledged after {retries} retries")
            return
        self.retries += 1
        self.next = self.una
        self._index = 0
        self._stamps.clear()
        # The timer starts when the packets are sent again: the NIC may be busy with others.
        self._asked = self.una - 1
        self.deadline_ns = NEVER_NS

    def _fail(self, error: str) -> None:
        self.error = error
        self.deadline_ns = NEVER_NS
