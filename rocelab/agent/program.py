"""A rank's program: its sends in the order of their dependencies, iteration after iteration.

From a rank's part of a schedule and the arrivals and acknowledgements it posts sends on
connections, and records when each iteration began and ended and how long the rank only waited for
others. Times are CLOCK_MONOTONIC nanoseconds. Pure: no socket, no clock.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import repeat
from typing import NamedTuple, Protocol

from rocelab.agent.nic import NEVER_NS
from rocelab.agent.steps import StepClock

ID_BITS = 22
MAX_ID = (1 << ID_BITS) - 1
ROUNDS = 1 << 9
"""The number of iterations that an immediate distinguishes; the count then wraps to 0."""


def immediate(iteration: int, send: int) -> int:
    """The lower 31 bits of the immediate, which identify a send of an iteration in each of its
    messages."""
    return (iteration % ROUNDS) << ID_BITS | send


class SendWay(Protocol):
    """A way to another rank: queue pairs (`RcConnection`), or the fabric of the server."""

    def send(self, size_bytes: int, imm: int) -> None:
        """Send `size_bytes`, 1 or more, identified by `imm`."""
        ...


class Wait(NamedTuple):
    """How long something waits: until `lags_ns` after each of the sends `after` has finished (none:
    at once), and until `at_ns` after the iteration began."""

    after: Sequence[int] = ()
    lags_ns: Sequence[int] = ()
    at_ns: int = 0


AT_ONCE = Wait()


class PlannedSend(NamedTuple):
    """A send of this rank: its connection, what it waits for, and how long the host takes before it
    leaves."""

    id: int
    connection: SendWay
    size_bytes: int
    wait: Wait
    host_ns: int = 0


_RELEASE, _POST, _END = range(3)
"""What a rank does at a time of its own: take a send up, post it, end the iteration."""


class AgentProgram:
    """One rank's part of a collective, repeated."""

    def __init__(
        self,
        rank: int,
        sends: Sequence[PlannedSend],
        receives: Mapping[int, int],
        iterations: int,
        compute_ns: int,
        on_iteration: Callable[[int, int], None],
        recorded: int = 0,
        launch_ns: int = 0,
        end: Wait = AT_ONCE,
    ) -> None:
        """`receives` has the bytes of each send to this rank, by id. `on_iteration` is called with
        the rank and the number of each finished iteration. The times of every send and receive of
        the last `recorded` iterations are kept. The host takes `launch_ns` before the first sends
        of an iteration, and computes until `end` behind the last."""
        self.rank = rank
        self._sends = {send.id: send for send in sends}
        self._receives = receives
        self._dependents: dict[int, list[tuple[int, int]]] = {}
        for send in sends:
            for before, lag_ns in _lagged(send.wait):
                self._dependents.setdefault(before, []).append((send.id, lag_ns))
        self._ends = dict(_lagged(end))
        self._least_ns = end.at_ns
        self._iterations = iterations
        self._compute_ns = compute_ns
        self._launch_ns = launch_ns
        self._on_iteration = on_iteration
        self.due_ns = NEVER_NS
        """When the next iteration begins, NEVER_NS during an iteration and after the last."""
        self.iteration = -1
        self.began_ns = array("q")
        self.ended_ns = array("q")
        self.waited_ns = array("q")
        self.received_bytes = 0
        self.steps = StepClock(self._sends, receives, recorded)
        self._early: dict[int, list[int]] = {}
        self._arrived = dict.fromkeys(receives, 0)
        self._partly = dict.fromkeys(receives, 0)
        self._missing: dict[int, int] = {}
        self._left = 0
        self._sending = 0
        self._blocked_ns = 0
        self._held: list[tuple[int, int, int]] = []
        self._ready_ns: dict[int, int] = {}
        self._over_ns = 0

    @property
    def next_ns(self) -> int:
        """When `turn` has something to do."""
        return min(self.due_ns, self._held[0][0]) if self._held else self.due_ns

    def turn(self, now_ns: int) -> None:
        """Begin the next iteration and post sends, as far as they are due."""
        if self.due_ns <= now_ns:
            self.begin(now_ns)
        while self._held and self._held[0][0] <= now_ns:
            due_ns, what, send_id = heappop(self._held)
            if what == _RELEASE:
                self._release(self._sends[send_id], due_ns)
            elif what == _POST:
                self._post(self._sends[send_id])
            else:
                self._end(due_ns)

    @property
    def finished(self) -> bool:
        return len(self.ended_ns) == self._iterations

    def begin(self, now_ns: int) -> None:
        """Begin the next iteration: release every send without dependencies."""
        self.due_ns = NEVER_NS
        self.iteration += 1
        self.began_ns.append(now_ns)
        self.waited_ns.append(0)
        self._blocked_ns = now_ns
        self._left = len(self._sends) + len(self._receives)
        self._over_ns = now_ns + self._least_ns
        waits = {send.id: send.wait for send in self._sends.values()}
        self._missing = {send_id: len(wait.after) for send_id, wait in waits.items() if wait.after}
        self._ready_ns = {send_id: now_ns + wait.at_ns for send_id, wait in waits.items()}
        for send_id, wait in waits.items():
            if not wait.after:
                self._take_up(send_id, now_ns, self._launch_ns)
        for send_id in self._early.pop(self.iteration, ()):
            self._finish_send(send_id, now_ns)
        if not self._sends and not self._receives:
            self._close(now_ns)

    def arrived(self, imm: int, size_bytes: int, now_ns: int) -> None:
        """Handle an arrived message of the send `imm`.

        A sender may be any number of iterations ahead, but repeats a send only when all of it was
        acknowledged: the n-th complete arrival of a send belongs to iteration n.
        """
        if not size_bytes:
            return  # a part of a message too short to be split over all queue pairs
        self.received_bytes += size_bytes
        send_id = imm & MAX_ID
        so_far = self._partly[send_id] + size_bytes
        if so_far < self._receives[send_id]:
            self._partly[send_id] = so_far
            return
        self._partly[send_id] = 0
        iteration = self._arrived[send_id]
        self._arrived[send_id] = iteration + 1
        self.steps.arrived(iteration, send_id, now_ns)
        if iteration == self.iteration:
            self._finish_send(send_id, now_ns)
        else:
            self._early.setdefault(iteration, []).append(send_id)

    def acknowledged(self, imm: int, now_ns: int) -> None:
        """Handle the complete acknowledgement of this rank's send `imm`."""
        self._sending -= 1
        if not self._sending:
            self._blocked_ns = now_ns
        send_id = imm & MAX_ID
        self.steps.acked(self.iteration, send_id, now_ns)
        self._finish_send(send_id, now_ns)

    def _take_up(self, send_id: int, now_ns: int, launch_ns: int = 0) -> None:
        """A send waits for no other: release it once its own time has come."""
        if (ready_ns := self._ready_ns[send_id]) > now_ns:
            heappush(self._held, (ready_ns, _RELEASE, send_id))
        else:
            self._release(self._sends[send_id], now_ns, launch_ns)

    def _release(self, send: PlannedSend, now_ns: int, launch_ns: int = 0) -> None:
        """Post a send once the host has taken its time."""
        if not self._sending:
            self.waited_ns[-1] += now_ns - self._blocked_ns
        self._sending += 1
        self.steps.posted(self.iteration, send.id, now_ns)
        if host_ns := launch_ns + send.host_ns:
            heappush(self._held, (now_ns + host_ns, _POST, send.id))
        else:
            self._post(send)

    def _post(self, send: PlannedSend) -> None:
        send.connection.send(send.size_bytes, immediate(self.iteration, send.id))

    def _finish_send(self, send_id: int, now_ns: int) -> None:
        self._left -= 1
        self._over_ns = max(self._over_ns, now_ns + self._ends.get(send_id, 0))
        for dependent, lag_ns in self._dependents.get(send_id, ()):
            self._ready_ns[dependent] = max(self._ready_ns[dependent], now_ns + lag_ns)
            self._missing[dependent] -= 1
            if not self._missing[dependent]:
                self._take_up(dependent, now_ns)
        if not self._left:
            self._close(now_ns)

    def _close(self, now_ns: int) -> None:
        """Everything is sent and received: end the iteration once what follows is computed."""
        if self._over_ns > now_ns:
            heappush(self._held, (self._over_ns, _END, 0))
        else:
            self._end(now_ns)

    def _end(self, now_ns: int) -> None:
        if not self._sending:
            self.waited_ns[-1] += now_ns - self._blocked_ns
        self.ended_ns.append(now_ns)
        self._on_iteration(self.rank, self.iteration)
        if not self.finished:
            self.due_ns = now_ns + self._compute_ns


def _lagged(wait: Wait) -> Iterator[tuple[int, int]]:
    """Each send that is waited for, and the time after it; without `lags_ns` none."""
    return zip(wait.after, wait.lags_ns or repeat(0), strict=False)


class StreamProgram:
    """A rank that sends to another continuously between two times."""

    OUTSTANDING = 2
    """Concurrent sends, so that the next is ready when one ends."""

    def __init__(
        self, connection: SendWay, send_id: int, chunk_bytes: int, at_ns: int, ends_ns: int
    ) -> None:
        """`at_ns` and `ends_ns` count from the start of the run."""
        self._connection = connection
        self._send_id = send_id
        self._chunk_bytes = chunk_bytes
        self.at_ns = at_ns
        self._ends_ns = ends_ns
        self._sequence = 0
        self.stopped = False

    def begin(self) -> None:
        for _ in range(self.OUTSTANDING):
            self._send()

    def acknowledged(self, at_ns: int) -> None:
        """Handle the complete acknowledgement of a send, `at_ns` after the start: post the next
        one."""
        if not self.stopped and at_ns < self._ends_ns:
            self._send()

    def _send(self) -> None:
        imm = immediate(self._sequence, self._send_id)
        self._sequence += 1
        self._connection.send(self._chunk_bytes, imm)
