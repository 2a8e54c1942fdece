"""Lossless classes of the plain simulator: what switches hold, who is paused, and receive buffers.

Nothing is counted on: what a switch's ports share is added up whenever it is needed, and each
watchdog and pause is an event of its own.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from rocelab.base.arrays import NONE, Longs
from rocelab.sim.packets.pausing import Pausing

if TYPE_CHECKING:
    from tests.unit.sim.packet_oracle import Flow, Oracle, Packet, Port


class Lane:
    """A lossless class on a link in one direction: a gate at the port that sends, and what the
    other end holds of what came through it."""

    def __init__(self, oracle: Oracle, pausing: Pausing, port: Port, class_: int) -> None:
        self.oracle, self.pausing, self.port, self.class_ = oracle, pausing, port, class_
        self.pool = int(pausing.pool[port.number])
        self.delay_ps = int(pausing.delay_ps[port.number])
        self.held: list[int] = []
        self.beyond = self.held_max = self.beyond_max = self.refused = 0
        self.is_over = False
        self.parked: list[Flow] = []
        self.is_closed = self.is_paused = self.has_fired = False
        self.closed_ps = self.paused_ps = self.longest_ps = 0
        self.idle_ps = self.resumed_ps = -1
        self.stops = self.firings = self.discards = 0

    # The receiver

    @property
    def neighbours(self) -> list[Lane]:
        """The lanes into the same switch."""
        return [lane for lane in self.oracle.lanes if lane.pool == self.pool != NONE]

    def number(self, name: str) -> int:
        """That of its own send, or of all."""
        column: Longs | int = getattr(self.pausing, name)
        return column if isinstance(column, int) else int(column[self.port.number])

    @property
    def excess(self) -> int:
        """What it has of what all share: neither in headroom nor reserved."""
        return max(sum(self.held) - self.beyond - self.number("reserved"), 0)

    @property
    def xoff(self) -> int:
        free = max(int(self.pausing.shared[self.pool]) - sum(i.excess for i in self.neighbours), 0)
        if self.number("xoff"):
            return min(self.number("xoff"), self.excess + free)
        return int(free * Fraction(2) ** self.number("dynamic_th"))

    def admits(self, packet: Packet) -> bool:
        if not self.is_over:
            self.held.append(packet.size)
            self.is_over = self.excess > 0 and self.excess >= self.xoff
            if self.is_over:
                self.ask(True)
        else:
            taken = sum(lane.beyond for lane in self.neighbours) + packet.size
            limit = int(self.pausing.headroom[self.port.number])
            if self.beyond + packet.size > limit or taken > self.pausing.reserve[self.pool]:
                self.refused += 1
                return False
            self.held.append(packet.size)
            self.beyond += packet.size
        self.held_max = max(self.held_max, sum(self.held))
        self.beyond_max = max(self.beyond_max, self.beyond)
        return True

    def leaves(self, packet: Packet) -> None:
        self.held.remove(packet.size)
        self.beyond = max(self.beyond - packet.size, 0)
        self.look()

    def look(self) -> bool:
        """Let the sender go on if this is below XON; whether it was asked to."""
        xon = max(self.xoff - self.number("xon_offset"), self.number("xon"))
        excess = max(sum(self.held) - self.number("reserved"), 0)
        resumes = self.is_over and not self.beyond and excess <= xon
        if resumes:
            self.ask(False)
        return resumes

    def ask(self, pauses: bool) -> None:
        self.is_over = pauses
        self.oracle.at(self.oracle.now + self.delay_ps, self.obey, pauses)

    # The sender

    def obey(self, pauses: bool) -> None:
        now, watchdog = self.oracle.now, self.pausing.watchdog
        self.is_paused = pauses
        if self.port.host is not None and self.port.is_nic:
            self.port.host.rouse()
        if self.has_fired:
            if not pauses:
                assert watchdog is not None
                self.resumed_ps = now
                self.oracle.at(now + watchdog.restoration_ps, self.restore, now)
        elif pauses:
            self.is_closed, self.closed_ps = True, now
            self.stops += 1
            if self.port.queues[self.class_]:
                self.watch()
        else:
            self.open()

    def open(self) -> None:
        self.is_closed = False
        length_ps = self.oracle.now - self.closed_ps
        self.paused_ps += length_ps
        self.longest_ps = max(self.longest_ps, length_ps)
        self.port.turns.extend(self.parked)
        self.parked = []
        self.port.serve()
        if self.port.host is not None:
            self.port.shape()

    def watch(self) -> None:
        """Packets wait from now on."""
        watchdog = self.pausing.watchdog
        self.idle_ps = self.oracle.now
        if watchdog is not None and not self.port.is_nic:
            self.oracle.at(self.idle_ps + watchdog.detection_ps, self.detect, self.idle_ps)

    def detect(self, idle_ps: int) -> None:
        queue = self.port.queues[self.class_]
        if not self.is_closed or idle_ps != self.idle_ps or not queue:
            return
        self.has_fired = True
        self.firings += 1
        if self.discards_all:
            while queue:
                packet = queue.popleft()
                self.discards += 1
                self.port.drops += 1
                packet.leave()
        self.open()

    def restore(self, resumed_ps: int) -> None:
        if not self.is_paused and resumed_ps == self.resumed_ps:
            self.has_fired = False

    @property
    def discards_all(self) -> bool:
        """Whether what comes is lost."""
        watchdog = self.pausing.watchdog
        return self.has_fired and watchdog is not None and watchdog.discards


class ReceiveBuffer:
    """Of a NIC, at the end of a port's link. Its host takes a byte in a whole number of ps."""

    def __init__(self, pausing: Pausing, port: Port) -> None:
        assert pausing.drain is not None
        of, number = pausing.drain, port.number
        self.port = port
        self.byte_ps = Fraction(8 * 10**12, int(of.rate_bps[number]))
        self.size, self.xoff, self.xon = (
            int(sizes[number]) for sizes in (of.size, of.xoff, of.xon)
        )
        self.held, self.at_ps, self.refused = Fraction(0), 0, 0

    def drain(self) -> None:
        now = self.port.oracle.now
        self.held = max(self.held - (now - self.at_ps) / self.byte_ps, Fraction(0))
        self.at_ps = now

    def takes(self, packet: Packet) -> bool:
        self.drain()
        if self.held + packet.size > self.size:
            self.refused += 1
            return False
        self.held += packet.size
        if self.held >= self.xoff:
            for lane in self.port.lanes.values():
                if not lane.is_over:
                    lane.ask(True)
            self.look_again()
        return True

    def look_again(self) -> None:
        due_ps = self.at_ps + (self.held - self.xon) * self.byte_ps
        self.port.oracle.at(int(due_ps), self.look)

    def look(self) -> None:
        self.drain()
        if self.held > self.xon:
            self.look_again()
            return
        for lane in self.port.lanes.values():
            if lane.is_over:
                lane.ask(False)
