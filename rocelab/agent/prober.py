"""Probe flows: one-way packets at a constant rate, each due at its own time, independent of earlier
delays.

Records the send time of every packet, the packets that the kernel refused, and those whose sending
took long: they left at some time between their stamp and the end of the call.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from time import monotonic_ns

from rocelab.agent.nic import BATCH, NEVER_NS, SECOND_NS, FrameOutlet
from rocelab.wire.probe import ProbeStamper

HELD_NS = 200_000
"""A packet whose sending took longer after its stamp is recorded. The kernel carries it across the
fabric within that call, which takes half of this unless another process gets the CPU."""


class ProbeFlow:
    """One flow: when its next packet is due, and the outcome of every packet so far."""

    def __init__(self, outlet: FrameOutlet, template: bytes, rate_pps: int, phase_ns: int) -> None:
        self.outlet = outlet
        self._template = template
        self.port_moves = 0
        self._stamper = ProbeStamper(template)
        self._rate_pps = rate_pps
        self._phase_ns = phase_ns
        self.sent_ns = array("q")
        self.refused = array("q")
        self.held = array("q")
        """Numbers of packets whose sending took longer than HELD_NS."""
        self.held_ns = array("q")
        """How long each of these took."""

    def move(self, outlet: FrameOutlet, macs: bytes) -> None:
        """Send by another port of the NIC from now on; frames begin with its addresses."""
        self.port_moves += 1
        self.outlet = outlet
        self._template = macs + self._template[len(macs) :]
        self._stamper = ProbeStamper(self._template)

    def deadline_ns(self, start_ns: int) -> int:
        """When the next packet is due: counted from the start, so that it never drifts."""
        return start_ns + self._phase_ns + len(self.sent_ns) * SECOND_NS // self._rate_pps

    def emit(self, stamp_ns: int) -> int:
        """Send the next packet, stamped with CLOCK_REALTIME; return its number."""
        sequence = len(self.sent_ns)
        self.sent_ns.append(stamp_ns)
        self.outlet.append(self._stamper.stamp(sequence, stamp_ns))
        return sequence


class Prober:
    """All probe flows of a server."""

    def __init__(self, flows: Sequence[ProbeFlow]) -> None:
        self.flows = flows
        self._start_ns = 0
        self._clock_offset_ns = 0
        self._due: list[tuple[int, int]] = []

    def start(self, start_ns: int, clock_offset_ns: int) -> None:
        """Begin at `start_ns` (CLOCK_MONOTONIC); the offset converts to CLOCK_REALTIME."""
        self._start_ns = start_ns
        self._clock_offset_ns = clock_offset_ns
        self._due = [(flow.deadline_ns(start_ns), i) for i, flow in enumerate(self.flows)]
        heapq.heapify(self._due)

    def stop(self) -> None:
        self._due.clear()

    def send(self) -> int:
        """Send due packets, at most BATCH; return when the next is due, NEVER_NS for never."""
        due = self._due
        if not due:
            return NEVER_NS
        now_ns = monotonic_ns()
        if due[0][0] <= now_ns:
            taken: dict[FrameOutlet, list[tuple[ProbeFlow, int]]] = {}
            for _ in range(BATCH):
                deadline_ns, index = due[0]
                if deadline_ns > now_ns:
                    break
                flow = self.flows[index]
                number = flow.emit(now_ns + self._clock_offset_ns)
                sent_ns = monotonic_ns()
                if sent_ns - now_ns > HELD_NS:
                    flow.held.append(number)
                    flow.held_ns.append(sent_ns - now_ns)
                now_ns = sent_ns
                taken.setdefault(flow.outlet, []).append((flow, number))
                heapq.heapreplace(due, (flow.deadline_ns(self._start_ns), index))
            for outlet, packets in taken.items():
                for place in outlet.flush():
                    refused_flow, number = packets[place]
                    refused_flow.refused.append(number)
        return due[0][0]
