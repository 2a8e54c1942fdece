"""A connection between two ranks: sends cut into messages and spread over its queue pairs.

Each send has an immediate that identifies it. The connection posts its messages on queue pairs and
detects when a send is finished. QP scaling is as in NCCL: `split` puts a part of every
message on each queue pair, `round-robin` puts whole messages on one after the other. With
admission, a message waits for a clear-to-send of the receiver.
"""

from __future__ import annotations

from collections import deque

from rocelab.agent.rc.queue_pair import QueuePair

CLEAR_TO_SEND = 1 << 31
"""Marks an immediate as a grant; the number of granted messages is in the bits below."""


class Admission:
    """The state of receiver-driven admission: the queue pair for grants, and the number
    outstanding."""

    __slots__ = ("control", "granted", "grants_received", "grants_sent", "initial")

    def __init__(self, control: QueuePair, messages: int) -> None:
        """`messages` may be in flight at once, each no longer than a receive buffer."""
        self.control = control
        self.initial = messages
        self.granted = 0
        self.grants_sent = 0
        self.grants_received = 0

    def grant(self, messages: int) -> None:
        """Let the other end send `messages` more messages."""
        self.grants_sent += messages
        self.control.post(0, CLEAR_TO_SEND | messages)


class RcConnection:
    """The queue pairs between two ranks, at one end."""

    __slots__ = ("_backlog", "_message_bytes", "_next", "_parts", "_split", "admission", "pairs")

    def __init__(
        self,
        pairs: list[QueuePair],
        *,
        split: bool,
        message_bytes: int,
        admission: Admission | None = None,
    ) -> None:
        self.pairs = pairs
        self.admission = admission
        self._split = split
        self._message_bytes = message_bytes
        self._next = 0
        self._backlog: deque[tuple[int, int]] = deque()
        self._parts: dict[int, int] = {}

    def open(self) -> None:
        """Let the other end send as much as there are buffers for."""
        if self.admission is not None:
            self.admission.grant(self.admission.initial * self._per_message)

    def send(self, size_bytes: int, imm: int) -> None:
        """Send `size_bytes`, 1 or more, in messages that all carry `imm`."""
        whole, rest = divmod(size_bytes, self._message_bytes)
        sizes = [self._message_bytes] * whole + ([rest] if rest else [])
        self._parts[imm] = self._parts.get(imm, 0) + len(sizes) * self._per_message
        for size in sizes:
            self._backlog.append((size, imm))
        self._post_backlog()

    @property
    def _per_message(self) -> int:
        return len(self.pairs) if self._split else 1

    def clear_to_send(self, messages: int) -> None:
        """Handle a grant of `messages` more messages."""
        if self.admission is not None:
            self.admission.granted += messages
            self.admission.grants_received += messages
        self._post_backlog()

    @property
    def waiting(self) -> bool:
        """Whether a message still waits for a clear-to-send."""
        return bool(self._backlog)

    def acknowledge_part(self, imm: int) -> bool:
        """Handle the acknowledgement of a part of a message; return whether its whole send is
        finished."""
        left = self._parts[imm] - 1
        if left:
            self._parts[imm] = left
            return False
        del self._parts[imm]
        return True

    def arrived(self) -> None:
        """Handle the arrival of a part of a message: its buffer is free again."""
        if self.admission is not None:
            self.admission.grant(1)

    def _post_backlog(self) -> None:
        backlog, admission, pairs = self._backlog, self.admission, self.pairs
        while backlog and (admission is None or admission.granted >= self._per_message):
            if admission is not None:
                admission.granted -= self._per_message
            size, imm = backlog.popleft()
            if self._split:
                part, more = divmod(size, len(pairs))
                for index, pair in enumerate(pairs):
                    pair.post(part + (index < more), imm)
            else:
                pairs[self._next].post(size, imm)
                self._next = (self._next + 1) % len(pairs)
