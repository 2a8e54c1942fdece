"""The process in a server: sends its flows at constant rates and receives every probe.

`python -m traffic.agent PARENT_PID`, with the control channel as its standard input. It enters the
server's namespace itself, arms its sockets, and runs all in one loop: sleep to the next deadline,
send what is due, take what has arrived. In: its flows, each with a complete frame. Out: the time of
every packet sent, which of them the kernel refused, and the columns of all that was received.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import heapq
import os
import resource
import select
import signal
import socket
import sys
from array import array
from time import CLOCK_REALTIME, clock_gettime_ns, monotonic_ns

from traffic.channel import Channel, ChannelClosedError, join, split
from traffic.priority import run_first
from traffic.probe import ProbeStamper
from traffic.ring import ProbeRing, open_sink

SECOND_NS = 10**9
BURST = 64
"""Packets sent at most, when late, before arrivals and commands get their turn."""

_CLONE_NEWNET = 0x40000000
_PR_SET_PDEATHSIG = 1
_PR_SET_TIMERSLACK = 29

REFUSALS = (errno.ENOBUFS, errno.EAGAIN, errno.ENETDOWN, errno.ENXIO, errno.ENODEV)
"""A full queue or buffer, and an interface that is down or gone: a refused packet, not a defect."""


class Sender:
    """One flow: when its next packet is due, and what became of every packet so far."""

    def __init__(
        self, outlet: socket.socket, template: bytes, rate_pps: int, phase_ns: int
    ) -> None:
        self._outlet = outlet
        self._stamper = ProbeStamper(template)
        self._rate_pps = rate_pps
        self._phase_ns = phase_ns
        self.sent_ns = array("q")
        self.refused = array("q")
        self.errors: dict[str, int] = {}

    def deadline_ns(self, start_ns: int) -> int:
        """When the next packet is due: counted from the start, so that it never drifts."""
        return start_ns + self._phase_ns + len(self.sent_ns) * SECOND_NS // self._rate_pps

    def send(self, stamp_ns: int) -> None:
        """Offer the next packet to the kernel, stamped with CLOCK_REALTIME `stamp_ns`."""
        sequence = len(self.sent_ns)
        self.sent_ns.append(stamp_ns)
        try:
            self._outlet.send(self._stamper.stamp(sequence, stamp_ns), socket.MSG_DONTWAIT)
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            self.refused.append(sequence)
            name = errno.errorcode[error.errno]
            self.errors[name] = self.errors.get(name, 0) + 1


class Agent:
    """The loop over one server's senders, its ring and its control channel."""

    def __init__(self, channel: Channel) -> None:
        """Arms everything in the namespace the setup message names. Raises OSError."""
        self._channel = channel
        setup = channel.receive()
        _enter(setup.fields["netns"])
        self._sink = open_sink()
        self._ring = ProbeRing()
        self._senders: list[Sender] = []
        outlets: dict[str, socket.socket] = {}
        templates = split(setup.fields["sizes"], setup.payload)
        for flow, template in zip(setup.fields["flows"], templates, strict=True):
            interface = flow["interface"]
            if interface not in outlets:
                outlets[interface] = _open_outlet(interface)
            self._senders.append(
                Sender(outlets[interface], template, flow["rate_pps"], flow["phase_ns"])
            )
        self._start_ns = 0
        self._clock_offset_ns = 0
        self._due: list[tuple[int, int]] = []

    def run(self) -> None:
        """Serve until the results are handed over. Raises ChannelClosedError, OSError."""
        startup_cpu_s = _cpu_s()
        self._channel.send({"startup_cpu_s": startup_cpu_s})
        control, ring = self._channel.fileno(), self._ring.fileno()
        while True:
            ready, _, _ = select.select((control, ring), (), (), self._send_due())
            if ring in ready:
                self._ring.drain()
            if control in ready:
                command = self._channel.receive().fields
                match command["do"]:
                    case "start":
                        self._start(command["at_ns"])
                    case "stop":
                        self._due.clear()
                        self._channel.send({"stopped_ns": monotonic_ns()})
                    case "finish":
                        drained = self._await_quiet(command["quiet_ns"], command["limit_ns"])
                        self._report(drained, _cpu_s() - startup_cpu_s)
                        return

    def _start(self, at_ns: int) -> None:
        run_first()
        self._start_ns = at_ns
        self._clock_offset_ns = clock_offset_ns()
        self._due = [
            (sender.deadline_ns(at_ns), index) for index, sender in enumerate(self._senders)
        ]
        heapq.heapify(self._due)

    def _send_due(self) -> float | None:
        """Send what is due. The seconds until the next deadline, None where there is none."""
        due = self._due
        if not due:
            return None
        now_ns = monotonic_ns()
        for _ in range(BURST):
            deadline_ns, index = due[0]
            if deadline_ns > now_ns:
                return (deadline_ns - now_ns) / SECOND_NS
            sender = self._senders[index]
            sender.send(now_ns + self._clock_offset_ns)
            heapq.heapreplace(due, (sender.deadline_ns(self._start_ns), index))
            now_ns = monotonic_ns()
        return 0.0

    def _await_quiet(self, quiet_ns: int, limit_ns: int) -> bool:
        """Take arrivals until none came for `quiet_ns`; False where `limit_ns` passed before."""
        end_ns = monotonic_ns() + limit_ns
        while monotonic_ns() < end_ns:
            ready, _, _ = select.select((self._ring,), (), (), quiet_ns / SECOND_NS)
            if not ready:
                return True
            self._ring.drain()
        return False

    def _report(self, drained: bool, cpu_s: float) -> None:
        flows = [{"errors": sender.errors} for sender in self._senders]
        sent = [
            part.tobytes() for sender in self._senders for part in (sender.sent_ns, sender.refused)
        ]
        sizes, payload = join([*sent, *self._ring.columns()])
        fields = {
            "flows": flows,
            "drained": drained,
            "cpu_s": cpu_s,
            "socket_drops": self._ring.drops(),
            "clock_offset_ns": self._clock_offset_ns,
            "sizes": sizes,
        }
        self._channel.send(fields, payload)


def clock_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC, read in the tightest of a few tries."""
    tries = []
    for _ in range(16):
        before = monotonic_ns()
        realtime = clock_gettime_ns(CLOCK_REALTIME)
        after = monotonic_ns()
        tries.append((after - before, realtime - (before + after) // 2))
    return min(tries)[1]


def _enter(netns: str) -> None:
    """Move this process into the namespace at that path. Raises OSError.

    Of its own and not `labs`'s: that package brings libraries an agent would spend its start on.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.setns(descriptor, _CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"setns: {os.strerror(number)}", netns)
    finally:
        os.close(descriptor)


def _open_outlet(interface: str) -> socket.socket:
    """A raw socket that sends by `interface`, through its queueing discipline. Raises OSError."""
    outlet = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    outlet.bind((interface, 0))
    return outlet


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _die_with(parent: int) -> None:
    """Have the kernel end this process when `parent` does, and end now if it already has."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> None:
    _die_with(int(sys.argv[1]))
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1)  # wake at the deadline, not up to 50 us later
    gc.disable()  # nothing here makes cycles, and a collection would delay packets
    try:
        Agent(Channel(socket.socket(fileno=0))).run()
    except ChannelClosedError:
        sys.exit(1)


if __name__ == "__main__":
    main()
