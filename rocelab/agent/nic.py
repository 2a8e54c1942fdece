"""A port of a server's NIC: sends at most at the link's rate, queue pairs in turn.

It sends control packets first, then one packet of each queue pair in turn, within the rates of its
link and of each queue pair. Most NICs have one port; `rocelab.linux.lag` is for those with two.
"""

from __future__ import annotations

import errno
import socket
from array import array
from collections import deque
from typing import Protocol

BATCH = 64
"""The most frames sent at once, so that arrivals get their turn."""

WIRE_OVERHEAD_BYTES = 24
"""Ethernet's overhead per frame on the wire: preamble 8, FCS 4, gap 12 (IEEE 802.3)."""

CATCH_UP_NS = 5_000_000
"""A NIC that was delayed catches up on this much time; earlier sending time is lost."""

NEVER_NS = 1 << 62
SECOND_NS = 10**9

REFUSALS = (errno.ENOBUFS, errno.EAGAIN, errno.ENETDOWN, errno.ENXIO, errno.ENODEV)
"""A full queue or buffer, and an interface that is down or gone: a refused packet, not a bug."""

MODERATION_US = 1
"""How long a NIC collects arrivals before it wakes its host, in the modelled network."""

MODERATION_LIMITS_NS = (50_000, 1_000_000)
"""How long an agent does at least and at most, in the lab's clock."""

_SO_SNDBUFFORCE = 32
_SEND_BUFFER_BYTES = 16 << 20


def moderation_ns(dilation: float) -> int:
    """How long an agent gathers arrivals, in the lab's clock."""
    low_ns, high_ns = MODERATION_LIMITS_NS
    return int(min(high_ns, max(low_ns, MODERATION_US * 1000 * dilation)))


class FrameOutlet:
    """A raw socket on one interface; frames leave through its queueing discipline, like any other.

    One system call per frame: sendmmsg(2) of 64 frames carries a quarter less over three switches,
    because the kernel forwards each packet in its sender's call (bench/README.md).
    """

    def __init__(self, interface: str) -> None:
        """Raises OSError."""
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _SEND_BUFFER_BYTES)
        self._socket.bind((interface, 0))
        self._refused: list[int] = []
        self.count = 0
        """Frames offered to the kernel since the last `flush`."""
        self.errors: dict[str, int] = {}
        """Refused frames by the name of the errno."""

    def append(self, frame: bytes | bytearray) -> None:
        """Send a frame. Raises OSError if the error is not in REFUSALS."""
        try:
            self._socket.send(frame, socket.MSG_DONTWAIT)
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            name = errno.errorcode[error.errno]
            self.errors[name] = self.errors.get(name, 0) + 1
            self._refused.append(self.count)
        self.count += 1

    def flush(self) -> list[int]:
        """The indexes of frames that the kernel refused since the last call; counting restarts."""
        refused, self._refused, self.count = self._refused, [], 0
        return refused


class FrameSource(Protocol):
    """A queue pair as its NIC sees it."""

    active: bool
    """Whether it takes turns."""
    traffic_class: int
    """The class of its data packets."""

    def due_ns(self, now_ns: int) -> int:
        """When the next packet may be sent; NEVER_NS if there is none."""
        ...

    def emit(self, outlet: FrameOutlet, limit: int, now_ns: int, free_ns: float) -> int:
        """Put 1 to `limit` packets into `outlet`; return their size as frames in bytes.

        The link has been free since `free_ns`, when a punctual machine would have sent.
        """
        ...


class AgentNic:
    """One port. Shares its link's rate among queue pairs, one packet of each in turn."""

    def __init__(self, outlet: FrameOutlet, rate_bps: float, frame_bytes: int) -> None:
        """`rate_bps` is the link's, in the lab's clock, `frame_bytes` its usual frame."""
        self.outlet = outlet
        self._ns_per_byte = 8 * SECOND_NS / rate_bps
        self._frame_ns = (frame_bytes + WIRE_OVERHEAD_BYTES) * self._ns_per_byte
        self._control: deque[bytes] = deque()
        self._active: deque[FrameSource] = deque()
        self._idle_until_ns = NEVER_NS
        self._free_ns = 0.0
        self.busy_ns = 0.0
        """How long the link was in use."""
        self.lost_ns = 0.0
        """How long it was idle though there was something to send: this machine was too slow."""
        self.late_ns = array("q")
        """How late each batch was sent, after the link was free for it."""
        self.refused = 0
        self.paused = 0
        """Bit c: its peer has paused class c."""

    def control(self, frame: bytes) -> None:
        """Send a packet before any of the queue pairs'."""
        self._control.append(frame)

    def activate(self, source: FrameSource) -> None:
        """Let a queue pair take turns until it has nothing it may send."""
        if not source.active:
            source.active = True
            self._active.append(source)

    def deactivate(self, source: FrameSource) -> None:
        """End a queue pair's turns."""
        if source.active:
            source.active = False
            self._active.remove(source)

    def send(self, now_ns: int) -> int:
        """Send what is due and fits the link's rate; return when to call again."""
        if not self._control and not self._active:
            return NEVER_NS
        self._free_ns = max(self._free_ns, float(min(now_ns, self._idle_until_ns)))
        late_ns = now_ns - self._free_ns
        if late_ns > 0:
            self.late_ns.append(int(late_ns))
            if late_ns > CATCH_UP_NS:
                self.lost_ns += late_ns - CATCH_UP_NS
                self._free_ns = float(now_ns - CATCH_UP_NS)
        next_ns = self._fill(now_ns)
        if self.outlet.count:
            self.refused += len(self.outlet.flush())
        return next_ns

    def _fill(self, now_ns: int) -> int:
        outlet, control, active = self.outlet, self._control, self._active
        while control and outlet.count < BATCH:
            frame = control.popleft()
            outlet.append(frame)
            self._occupy(1, len(frame))
        self._idle_until_ns = 0
        if control:
            return now_ns
        waiting: list[FrameSource] = []
        earliest_ns = NEVER_NS
        while active:
            source = active[0]
            if self.paused >> source.traffic_class & 1:
                waiting.append(active.popleft())
                continue
            due_ns = source.due_ns(now_ns)
            if due_ns > now_ns:
                active.popleft()
                if due_ns == NEVER_NS:
                    source.active = False
                else:
                    waiting.append(source)
                    earliest_ns = min(earliest_ns, due_ns)
                continue
            if outlet.count >= BATCH:
                next_ns = now_ns
                break
            if self._free_ns > now_ns:
                next_ns = int(self._free_ns) + 1
                break
            # A single queue pair need not take turns.
            limit = 1
            if len(active) == 1:
                time_for = int((now_ns - self._free_ns) / self._frame_ns) + 1
                limit = min(BATCH - outlet.count, time_for)
            before = outlet.count
            size = source.emit(outlet, limit, now_ns, self._free_ns)
            self._occupy(outlet.count - before, size)
            active.rotate(-1)
        else:
            self._idle_until_ns = next_ns = earliest_ns
        active.extend(waiting)
        return next_ns

    def _occupy(self, frames: int, size_bytes: int) -> None:
        used_ns = (size_bytes + frames * WIRE_OVERHEAD_BYTES) * self._ns_per_byte
        self._free_ns += used_ns
        self.busy_ns += used_ns
