"""The process that delays a switch's packets, inside the switch's namespace.

The wire program redirects packets into a veth pair, each with its slot as VLAN id and the kernel's
arrival time. This process sends them back through the pair, in order, when their rule's delay is
over, each from a socket whose mark is its slot. Standard library only, so that it starts fast. How
late they leave is counted beside the pid file, on from what a line of the switch counted before.

A packet costs it far more CPU time than forwarding does.
"""

from __future__ import annotations

import mmap
import os
import select
import signal
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rocelab.base.files import write_file
from rocelab.dataplane.impairments.maps import ImpairmentMaps
from rocelab.linux.background import serving
from rocelab.linux.priority import run_first, set_timer_slack
from rocelab.linux.ring import SECOND_NS, PacketRing

HELD_LIMIT_BYTES = 128 << 20
"""The most that one switch may hold: further packets are lost, and count as delayed but not
resumed."""

PACKET_COST_BYTES = 200
"""Python's overhead per held packet."""

DRAIN_LIMIT = 64
REST_NS = 4_000_000
"""The longest sleep between reads of the ring while packets are held; a quarter of the shortest
delay so far, if that is less."""

MIN_REST_NS = 20_000
NEVER_NS = 1 << 63
EARLY_NS = 20_000
"""A packet leaves this early: the way back through the pair takes longer."""

LATE_PART = 10
"""A packet is late where it leaves more than a tenth of its delay after it was due."""

VERY_LATE = 20
"""A packet is very late where it leaves more than this many times its delay after it was due: the
process was stopped, or had no CPU."""

_LATENESS = struct.Struct("=QQQQ")

_ETH_P_ALL = 0x0003
_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23
_SO_MARK = 36
_SO_SNDBUFFORCE = 32


class Arrival(NamedTuple):
    """A packet out of the ring; its time is CLOCK_REALTIME ns."""

    slot: int
    t_ns: int
    frame: bytes


def open_delay_ring(interface: str, mtu: int) -> PacketRing:
    """A ring with the packets that enter the pair from now on. Raises OSError without CAP_NET_RAW
    or memory."""
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    packets.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    ring = PacketRing(packets, mtu, DRAIN_LIMIT)
    packets.bind((interface, _ETH_P_ALL))
    return ring


def arrivals(ring: PacketRing) -> Iterator[Arrival]:
    """Every waiting packet, up to DRAIN_LIMIT."""
    for at, seconds, nanoseconds in ring.frames():
        record = ring.tag_and_length()
        if record is not None:
            slot, length = record
            frame = bytes(ring.memory[at : at + length])
            yield Arrival(slot, seconds * SECOND_NS + nanoseconds, frame)


class HeldPacket(NamedTuple):
    """A packet, when it is due, in CLOCK_MONOTONIC ns, and the delay of its slot, or the last one
    where that was cleared; 0: none is known."""

    due_ns: int
    frame: bytes
    delay_ns: int = 0


class Lateness(NamedTuple):
    """Packets that a delay line let out, how many of them late, the sum of all lateness, and how
    many were very late."""

    packets: int = 0
    late: int = 0
    total_ns: int = 0
    very_late: int = 0

    def after(self, held: HeldPacket, now_ns: int, least_ns: int = 0) -> Lateness:
        """With a packet that leaves now. A delay below `least_ns` counts as that where it is about
        very late packets."""
        late_ns = max(0, now_ns - held.due_ns)
        return Lateness(
            self.packets + 1,
            self.late + (late_ns > held.delay_ns // LATE_PART),
            self.total_ns + late_ns,
            self.very_late + (late_ns > max(held.delay_ns, least_ns) * VERY_LATE),
        )


def lateness_file(pid_file: Path) -> Path:
    """The file of counters of the process with this pid file."""
    return pid_file.with_name(f"{pid_file.name}.lateness")


def read_lateness(pid_file: Path) -> Lateness:
    """What processes with this pid file have counted; nothing if none ever ran."""
    try:
        return Lateness(*_LATENESS.unpack(lateness_file(pid_file).read_bytes()))
    except FileNotFoundError:
        return Lateness()


class DelayQueues:
    """Delayed packets, a queue per slot: a cable does not reorder packets."""

    def __init__(self, limit_bytes: int = HELD_LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._queue_of: dict[int, deque[HeldPacket]] = {}
        self.bytes = 0

    def put(self, slot: int, due_ns: int, frame: bytes, delay_ns: int = 0) -> None:
        """Hold a packet, due no earlier than the one before it; drop it if there is no room."""
        cost = len(frame) + PACKET_COST_BYTES
        if self.bytes + cost > self._limit_bytes:
            return
        self.bytes += cost
        queue = self._queue_of.setdefault(slot, deque())
        queue.append(
            HeldPacket(max(due_ns, queue[-1].due_ns) if queue else due_ns, frame, delay_ns)
        )

    def pop_due(self, now_ns: int) -> Iterator[tuple[int, HeldPacket]]:
        """Every packet that is due by `now_ns`, with its slot."""
        for slot, queue in self._queue_of.items():
            while queue and queue[0].due_ns <= now_ns:
                held = queue.popleft()
                self.bytes -= len(held.frame) + PACKET_COST_BYTES
                yield slot, held

    def slots(self) -> tuple[int, ...]:
        """Every slot that ever had a packet."""
        return tuple(self._queue_of)

    def make_due(self, slot: int, now_ns: int) -> None:
        """Make all of a slot's packets due now, or when they were if that was before."""
        queue = self._queue_of[slot]
        self._queue_of[slot] = deque(
            held._replace(due_ns=min(held.due_ns, now_ns)) for held in queue
        )

    def next_ns(self) -> int | None:
        """When the next packet is due, None where none is held."""
        return min((queue[0].due_ns for queue in self._queue_of.values() if queue), default=None)


class DelayOutlet:
    """Sends packets back to the kernel, each with its slot as mark."""

    def __init__(self, interface: str) -> None:
        self._interface = interface
        self._socket_of: dict[int, socket.socket] = {}

    def send(self, slot: int, frame: bytes) -> None:
        """Send a packet. One that the kernel refuses is lost, as `resumed` shows."""
        by = self._socket_of.get(slot)
        if by is None:
            by = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            by.setsockopt(socket.SOL_SOCKET, _SO_MARK, slot)
            by.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, 4 << 20)
            by.bind((self._interface, 0))
            self._socket_of[slot] = by
        with suppress(OSError):
            by.send(frame)


class DelayLine:
    """Receives packets and sends them when they are due."""

    def __init__(
        self,
        ring: PacketRing,
        outlet: DelayOutlet,
        delay_of: Callable[[int], int],
        counted: memoryview,
        least_ns: int,
    ) -> None:
        """`delay_of` gives the delay in ns that a slot's packets have now; `least_ns` as of
        `Lateness.after`."""
        self._ring = ring
        self._outlet = outlet
        self._delay_of = delay_of
        self._queues = DelayQueues()
        self._latest: dict[int, int] = {}
        self._rest_ns = REST_NS
        self._lateness = Lateness(*counted)
        self._counted = counted
        self._least_ns = least_ns

    def run(self, wakeup: int) -> None:
        """Work until SIGTERM; then send all held packets, in order.

        `wakeup` is the descriptor where signals arrive. On SIGHUP, send the packets whose rule no
        longer has a delay.
        """
        while True:
            self._queue_waiting()
            self._send_due(time.monotonic_ns() + EARLY_NS)
            signals = self._rest(wakeup)
            if signal.SIGTERM in signals:
                break
            if signal.SIGHUP in signals:
                self._send_cleared()
        while self._queue_waiting():
            pass
        self._send_due(NEVER_NS)

    def _rest(self, wakeup: int) -> bytes:
        """Wait until there is something to do; return the signals that came."""
        next_ns = self._queues.next_ns()
        if next_ns is None:
            ready, _, _ = select.select([self._ring.fileno(), wakeup], [], [])
        else:
            ready, _, _ = select.select([wakeup], [], [], 0)
            rest_ns = min(next_ns - EARLY_NS - time.monotonic_ns(), self._rest_ns)
            if rest_ns > 0 and not ready:
                time.sleep(rest_ns / 1e9)
        return os.read(wakeup, 64) if wakeup in ready else b""

    def _send_cleared(self) -> None:
        while self._queue_waiting():
            pass
        for slot in self._queues.slots():
            if not self._delay_of(slot):
                self._queues.make_due(slot, time.monotonic_ns())
        self._send_due(time.monotonic_ns())

    def _queue_waiting(self) -> int:
        """Queue all waiting packets; return their number."""
        # In this order: a pause between the two makes packets late, never early.
        real_ns = time.time_ns()
        now_ns = time.monotonic_ns()
        offset_ns = now_ns - real_ns
        delays: dict[int, int] = {}
        count = 0
        for slot, t_ns, frame in arrivals(self._ring):
            count += 1
            if slot not in delays:
                delays[slot] = self._delay_of(slot)
                self._rest_ns = min(self._rest_ns, max(MIN_REST_NS, delays[slot] // 4))
            self._latest[slot] = delays[slot] or self._latest.get(slot, 0)
            # No later than now plus the delay: CLOCK_REALTIME may have been set meanwhile.
            due_ns = min(t_ns + offset_ns, now_ns) + delays[slot]
            self._queues.put(slot, due_ns, frame, self._latest[slot])
        return count

    def _send_due(self, by_ns: int) -> None:
        lateness = self._lateness
        for slot, held in self._queues.pop_due(by_ns):
            self._outlet.send(slot, held.frame)
            lateness = lateness.after(held, time.monotonic_ns(), self._least_ns)
        if lateness is not self._lateness:
            self._lateness = lateness
            # Word by word: `struct.pack_into` would write zeros first, which a reader could see.
            for place, count in enumerate(lateness):
                self._counted[place] = count


def main() -> None:
    """`python -m rocelab.dataplane.impairments.delayline PINS INTERFACE MTU CPU LEAST_NS PID_FILE
    READY_FD`.

    INTERFACE: this process's end of the pair; the other is the wire program's."""
    pins, interface, mtu, cpu, least_ns, *found_by = sys.argv[1:]
    wakeup, tells = os.pipe()
    os.set_blocking(tells, False)
    signal.set_wakeup_fd(tells)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    with serving(*found_by) as ready, ImpairmentMaps(Path(pins)) as maps:
        _set_realtime_priority(int(cpu))

        def delay_of(slot: int) -> int:
            rule = maps.rule(slot)
            return 0 if rule is None else rule.delay_ns

        counted = _counts(lateness_file(Path(found_by[0])))
        ring, outlet = open_delay_ring(interface, int(mtu)), DelayOutlet(interface)
        line = DelayLine(ring, outlet, delay_of, counted, int(least_ns))
        ready()
        line.run(wakeup)


def _counts(file: Path) -> memoryview:
    if not file.exists():
        # Whatever the umask: who can cut a mapped file short ends the process that writes to it.
        write_file(file, bytes(_LATENESS.size))
    with file.open("r+b") as opened:
        return memoryview(mmap.mmap(opened.fileno(), _LATENESS.size)).cast("Q")


def _set_realtime_priority(cpu: int) -> None:
    """Run before ordinary processes (sched(7)), on one CPU: a packet sent from another CPU could
    overtake one in the first one's backlog. If the machine forbids it, packets are late."""
    set_timer_slack()
    run_first()
    with suppress(OSError):
        usable = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {usable[cpu % len(usable)]})


if __name__ == "__main__":
    main()
