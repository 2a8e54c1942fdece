"""A port under test and a wire through it, for the tests of switch ports' queues.

The port is the one from rtsw1 to srv1-2, filled from srv1-1. Packet sockets record the packets on
both sides, independently of the counters under test.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from math import exp, lgamma, log, log1p
from typing import NamedTuple

from rocelab.dataplane.queues.reading import read_queue_counters
from rocelab.lab.lab import RunningLab
from rocelab.linux import namespaces
from rocelab.linux.counters import QueueCounters
from rocelab.linux.netlink import SO_RCVBUFFORCE, SO_SNDBUFFORCE
from rocelab.linux.priority import running_first
from rocelab.planning.fabric import Port
from rocelab.planning.queues import burst_bytes
from tests.helpers.waiting import LIMIT_S, wait_until
from tests.integration.conftest import MakeLab

UNDER_TEST = ("rtsw1", "srv1-2")
SO_TIMESTAMPNS = 35
PACKET_OUTGOING = 4
DATA, CNP, ACK, ROUTING = 26, 48, 46, 48
ECT0, CE = 2, 3
PREAMBLE_AND_MORE = 24
"""Bytes of a frame on a wire beyond those that a packet socket shows."""
TINY = "fabric: {racks: 1, spines: 1, servers_per_rack: 2}"


@dataclass
class Seen:
    """A packet at the far end."""

    time_ns: int
    dscp: int
    ecn: int
    number: int
    length: int


class Arrival(NamedTuple):
    """A packet that came to the port: the bytes before it in the queue are `depth` at most, and
    `least` at least."""

    is_marked: bool
    depth: int
    least: int


def arrivals(line: Wire, length: int, count: int, rate_bps: int) -> list[Arrival]:
    """Send `count` packets of class 3 at once, and see them arrive, none dropped or reordered.

    Behind each comes one that the port sends at once: a switch may be behind, and the time when
    that one has passed is the first known when the packet was in the queue. depth: those sent
    before less those received before. A busy machine stamps what it sends early and what it
    receives late. least: less those that the port could have sent since the first was sent.
    """
    frames = (
        (line.frame(DATA, ECT0, length, number), line.frame(ROUTING, 0, 60, number, port=179))
        for number in range(count)
    )
    sent_ns = line.send([frame for pair in frames for frame in pair])[::2]
    got: list[Seen] = []
    passed_ns = {count: 2**63}
    while len(got) < count:
        (seen,) = line.receive(1)
        if seen.dscp == DATA:
            got.append(seen)
        else:
            passed_ns[seen.number] = seen.time_ns
    assert [packet.number for packet in got] == list(range(count)), "dropped or reordered"
    for number in reversed(range(count)):  # a full backlog may have dropped one
        passed_ns.setdefault(number, passed_ns[number + 1])
    wire_bytes, burst = length + PREAMBLE_AND_MORE, burst_bytes(rate_bps, 1500)
    gone, packets = 0, []
    for number, seen in enumerate(got):
        while gone < number and got[gone].time_ns < sent_ns[number]:
            gone += 1
        could_bytes = burst + (passed_ns[number] - sent_ns[0]) * rate_bps / 8e9
        could_go = 1 + int(could_bytes / wire_bytes)
        packets.append(
            Arrival(seen.ecn == CE, *(length * (number - out) for out in (gone, could_go)))
        )
    return packets


@dataclass
class Wire:
    """A sender in srv1-1 and a packet socket in srv1-2."""

    lab: RunningLab
    sender: socket.socket
    receiver: socket.socket
    source: Port
    gateway: Port
    target: Port

    def frame(self, dscp: int, ecn: int, length: int, number: int, port: int = 4791) -> bytes:
        """A UDP frame of `length` bytes from srv1-1's NIC to srv1-2's."""
        ip = struct.pack(
            ">BBHHHBBH4s4s",
            *(0x45, dscp << 2 | ecn, length - 14, 0, 0, 64, 17, 0),
            socket.inet_aton(self.source.ip),
            socket.inet_aton(self.target.ip),
        )
        total = sum(struct.unpack(">10H", ip))
        total = (total & 0xFFFF) + (total >> 16)
        ip = ip[:10] + struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF) + ip[12:]
        udp = struct.pack(">HHHH", 50000, port, length - 34, 0)
        ethernet = bytes.fromhex((self.gateway.mac + self.source.mac).replace(":", "")) + b"\x08\0"
        return (ethernet + ip + udp + struct.pack(">I", number)).ljust(length, b"\0")

    def send(self, frames: list[bytes]) -> list[int]:
        """Send all frames at once, with priority; return the time (CLOCK_REALTIME, ns) before
        each. Where the far end's backlog is full, as of a single CPU that only sends, the kernel
        has dropped the frame, and it is sent again."""
        times: list[int] = []
        with running_first():
            while len(times) < len(frames):
                before_ns = time.time_ns()
                try:
                    self.sender.send(frames[len(times)])
                except OSError as error:
                    if error.errno != errno.ENOBUFS:
                        raise
                    time.sleep(0.001)
                else:
                    times.append(before_ns)
        return times

    def receive(self, count: int, timeout_s: float = LIMIT_S) -> list[Seen]:
        """The next `count` UDP packets, or those that arrived in time."""
        packets: list[Seen] = []
        deadline = time.monotonic() + timeout_s
        while len(packets) < count:
            if not select.select([self.receiver], [], [], max(0, deadline - time.monotonic()))[0]:
                break
            data, control, _, address = self.receiver.recvmsg(64, 64, socket.MSG_TRUNC)
            if address[2] == PACKET_OUTGOING or data[12:14] != b"\x08\0" or data[23] != 17:
                continue
            seconds, nanoseconds = struct.unpack("=qq", control[0][2])
            length = struct.unpack_from(">H", data, 16)[0] + 14
            number = struct.unpack_from(">I", data, 42)[0]
            packets.append(
                Seen(seconds * 10**9 + nanoseconds, data[15] >> 2, data[15] & 3, number, length)
            )
        return packets

    def queue(self, traffic_class: int) -> QueueCounters:
        return read_queue_counters(self.lab.fabric)[UNDER_TEST][traffic_class]

    def taken(self, traffic_class: int, packets: int) -> QueueCounters:
        """The counters once the port has taken or dropped so many packets: a kernel that is behind
        still has some on the way to it."""
        samples: list[QueueCounters] = []

        def all_are_there() -> bool:
            samples[:] = [self.queue(traffic_class)]
            return samples[0].packets + samples[0].dropped_packets >= packets

        wait_until(all_are_there, f"{packets} packets at the port")
        assert samples[0].packets + samples[0].dropped_packets == packets
        return samples[0]


@dataclass(frozen=True)
class Drained:
    """Arrival times of frames of `length` bytes from a port with a full queue."""

    arrived_ns: Sequence[int]
    length: int

    def rate_bps(self) -> float:
        """The rate, with Ethernet's overhead on the wire."""
        bits = (len(self.arrived_ns) - 1) * (self.length + PREAMBLE_AND_MORE) * 8
        return bits * 1e9 / (self.arrived_ns[-1] - self.arrived_ns[0])

    def problems(self, rate_bps: int, mtu: int, tolerance: float) -> tuple[str, ...]:
        """Why the rate is not known to within `tolerance`: the machine's timers were later than the
        port's burst can compensate. A late timer is time saved up, which the next frames use."""
        most_ns = burst_bytes(rate_bps, mtu) * 8e9 / rate_bps
        frame_ns = (self.length + PREAMBLE_AND_MORE) * 8e9 / rate_bps
        saved_ns = idle_ns = 0.0
        for before, after in pairwise(self.arrived_ns):
            saved_ns = max(0.0, saved_ns + after - before - frame_ns)
            idle_ns += max(0.0, saved_ns - most_ns)
            saved_ns = min(saved_ns, most_ns)
        if idle_ns <= tolerance / 3 * (self.arrived_ns[-1] - self.arrived_ns[0]):
            return ()
        return (f"not valid because the port's timer was {idle_ns / 1e6:.1f} ms late in all",)


@contextmanager
def wire(lab: RunningLab) -> Iterator[Wire]:
    def packet_socket() -> socket.socket:
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        made.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        made.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, 256 << 20)
        made.bind(("rtsw1", 0x0003))
        return made

    nodes = [lab.node(name).netns for name in ("srv1-1", "srv1-2")]
    up, down = (lab.fabric.links_of[name][0] for name in ("srv1-1", "srv1-2"))
    sender, receiver = (namespaces.inside(node, packet_socket) for node in nodes)
    with sender, receiver:
        yield Wire(lab, sender, receiver, up.a, up.b, down.a)


def lab_with(
    make_lab: MakeLab, name: str, rate: str, queues: str = "", mtu: int = 1500
) -> RunningLab:
    """One rack, ports of `rate` on the machine (dilation 1)."""
    body = f"{TINY}\nlinks: {{rate: {rate}, server_rate: {rate}, mtu: {mtu}}}\ndilation: 1\n"
    lab = make_lab(name, f"{body}queues: {{{queues}}}")
    lab.start()
    return lab


def counted_at(lab: RunningLab) -> dict[int, QueueCounters]:
    return dict(read_queue_counters(lab.fabric)[UNDER_TEST])


def two_sided(marks: int, packets: int, probability: float) -> float:
    """Twice the smaller tail of the binomial distribution, `marks` included."""

    def chance(count: int) -> float:
        ways = lgamma(packets + 1) - lgamma(count + 1) - lgamma(packets - count + 1)
        return exp(ways + count * log(probability) + (packets - count) * log1p(-probability))

    below = sum(chance(count) for count in range(marks + 1))
    above = sum(chance(count) for count in range(marks, packets + 1))
    return 2 * min(below, above)
