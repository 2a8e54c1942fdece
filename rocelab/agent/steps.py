"""Records the times of a rank's sends and receives, and how late its host was.

The result is columns of CLOCK_MONOTONIC nanoseconds, of a fixed size: when sends were posted,
acknowledged and received, and when the agent had work to do but did none; and how long it was
behind. Standard library only:
agents import it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

STALL_NS = 10_000_000
"""Shorter delays are the machine's scheduling and are not recorded."""

MOST_STALLS = 4096


class StepClock:
    """The times of a rank's sends and receives in the last `kept` iterations, 0 for never.

    A column has a row of all sends (or receives) per iteration, iteration n in row n mod `kept`.
    """

    def __init__(self, sends: Iterable[int], receives: Iterable[int], kept: int) -> None:
        self._kept = kept
        self._send = {send: place for place, send in enumerate(sends)}
        self._receive = {send: place for place, send in enumerate(receives)}
        self.posted_ns = array("q", bytes(8 * kept * len(self._send)))
        self.acked_ns = array("q", bytes(8 * kept * len(self._send)))
        self.arrived_ns = array("q", bytes(8 * kept * len(self._receive)))

    def posted(self, iteration: int, send: int, now_ns: int) -> None:
        """Record that the send's dependencies are finished, and its host begins with it."""
        if self._kept:
            row = iteration % self._kept * len(self._send)
            self.posted_ns[row + self._send[send]] = now_ns

    def acked(self, iteration: int, send: int, now_ns: int) -> None:
        """Record that the whole send is acknowledged."""
        if self._kept:
            row = iteration % self._kept * len(self._send)
            self.acked_ns[row + self._send[send]] = now_ns

    def arrived(self, iteration: int, send: int, now_ns: int) -> None:
        """Record that the whole send was received."""
        if self._kept:
            row = iteration % self._kept * len(self._receive)
            self.arrived_ns[row + self._receive[send]] = now_ns

    def columns(self) -> list[bytes]:
        """The columns posted, acknowledged, arrived."""
        return [times.tobytes() for times in (self.posted_ns, self.acked_ns, self.arrived_ns)]


class Stalls:
    """Times when the process had work to do and did none, like a paused host."""

    def __init__(self) -> None:
        self.ended_ns = array("q")
        self.length_ns = array("q")

    def note(self, now_ns: int, waiting_since_ns: int) -> None:
        """Called at the start of each turn, with the time since which a packet or a deadline has
        waited; `now_ns` or later for none."""
        if now_ns - waiting_since_ns < STALL_NS or len(self.ended_ns) >= MOST_STALLS:
            return
        # Work delayed by a stall has waited since before the stall's end.
        begin_ns = max(waiting_since_ns, self.ended_ns[-1] if self.ended_ns else 0)
        self.ended_ns.append(now_ns)
        self.length_ns.append(now_ns - begin_ns)


class Backlog:
    """How long frames waited for the process after a NIC would have passed them on.

    Counted from `start` on: a frame's time of arrival is on a clock that may be set meanwhile, and
    then is any time.
    """

    def __init__(self) -> None:
        self.total_ns = 0
        self._until_ns = 0

    def start(self, now_ns: int) -> None:
        """Count what frames wait from now on."""
        self._until_ns = max(self._until_ns, now_ns)

    def note(self, due_ns: int, now_ns: int) -> None:
        """Called when frames were handled, with the time when the first of them was due."""
        begin_ns = max(due_ns, self._until_ns)
        if now_ns > begin_ns:
            self.total_ns += now_ns - begin_ns
            self._until_ns = now_ns
