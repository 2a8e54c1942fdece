"""What programs on a lab's servers did, as data: a frozen `ProgramReport` for documents.

All times are in the lab's clock, in ns: instants from time 0, which is the start of the programs,
or in a drill when they were ready.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.results.health import HealthReport
from rocelab.results.probes import Event
from rocelab.results.stages import Stages

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Stall:
    """A time in which a sender had something to send and nothing was acknowledged."""

    began_ns: int
    ended_ns: int

    @property
    def lasted_ns(self) -> int:
        return self.ended_ns - self.began_ns


@dataclass(frozen=True, slots=True)
class TcpConnection:
    """A direction of a TCP connection between two servers, by the kernel of its sender."""

    source: str
    source_port: int
    destination: str
    destination_port: int
    began_ns: int
    """When a sample first showed it."""

    ended_ns: int
    delivered_bytes: int
    """Payload that was acknowledged."""

    resent_bytes: int
    rtt_us: int
    """The last smoothed round-trip time (RFC 6298)."""

    min_rtt_us: int
    stalls: tuple[Stall, ...]
    network: str | None = None
    """That of both ends, in a lab with several."""

    @property
    def goodput_bps(self) -> float | None:
        """Delivered bits a second; None of one that one sample alone has shown."""
        lasted_ns = self.ended_ns - self.began_ns
        return self.delivered_bytes * 8e9 / lasted_ns if lasted_ns else None

    @property
    def resent_share(self) -> float:
        """Of all payload that was sent."""
        return self.resent_bytes / (self.delivered_bytes + self.resent_bytes)

    @property
    def longest_stall_ns(self) -> int:
        return max((stall.lasted_ns for stall in self.stalls), default=0)


@dataclass(frozen=True, slots=True)
class RankEnd:
    """How a program ended: with an exit code, or -N by signal N. None: it ran on when another had
    failed, and was ended for that."""

    rank: int
    name: str
    code: int | None
    lasted_ns: int
    failed: str | None = None
    """Why it was not started."""


@dataclass(frozen=True, slots=True)
class ProgramLink:
    """What a direction of a link carried, by the kernel's counters of the port that sends there.
    What is of connections is None between switches, and of a NIC with two ports: which of them a
    connection crosses is the kernel's choice, by a hash of its socket that nothing outside
    reads."""

    link: str
    sender: str
    receiver: str
    network: str | None
    """Of a lab with several."""

    sent_bytes: int
    """Everything that the port sent: of the programs, of routing, and of others. Of segments that
    the kernel sends as one packet the headers count once."""

    share: float
    """Of what the link's rate in the lab carries in the time of the programs."""

    queue_drops: int | None
    """Packets that the switch port's queue dropped, several segments as one; None of a port without
    queues, such as a server's."""

    connections: int | None
    """TCP connections whose data crosses it."""

    resent_bytes: int | None
    """The payload that these sent again."""

    stalls: int | None
    longest_stall_ns: int | None


@dataclass(frozen=True, slots=True)
class UdpCounts:
    """UDP datagrams of a server, by its kernel: over all its NICs and its loopback."""

    server: str
    sent: int
    received: int
    errors: int
    """Those that arrived and that no program got: a wrong checksum, or a full buffer."""


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """A run of programs on the servers of a lab."""

    schema_version: int
    lab: str
    dilation: float
    command: tuple[str, ...]
    ranks: tuple[RankEnd, ...]
    began_ns: int
    """When they were started."""

    lasted_ns: int
    connections: tuple[TcpConnection, ...]
    delivered: tuple[tuple[int, int], ...]
    """The payload of all connections that was acknowledged until then, at each sample: instants in
    ns, and bytes."""

    stall_bin_ns: int
    """The shortest stall that is reported."""

    longest_interval_ns: int
    """The longest time between two samples. A stall may be longer than it was by this, and be
    missed if it is shorter than `stall_bin_ns` and this together."""

    cpu_share: float
    """How busy this machine's CPUs were meanwhile: programs compute at its speed."""

    warnings: tuple[str, ...]
    links: tuple[ProgramLink, ...] = ()
    """Directions of links that carried anything, those that carried most first."""

    udp: tuple[UdpCounts, ...] = ()
    """Servers that sent or received UDP."""

    @property
    def code(self) -> int:
        """The exit code of the run: of the program that failed first, as shells have it; 0 without
        one."""
        failed = [(rank.lasted_ns, rank.code) for rank in self.ranks if rank.code]
        code = min(failed)[1] if failed else 0
        return code if code >= 0 else 128 - code


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A figure that programs printed, line by line: instants in ns and values."""

    name: str
    unit: str
    points: tuple[tuple[int, float], ...]

    @property
    def values(self) -> list[float]:
        return [value for _, value in self.points]


def p99(values: Sequence[float]) -> float:
    """The least of the values that 99% do not exceed."""
    return sorted(values)[math.ceil(0.99 * len(values)) - 1]


@dataclass(frozen=True, slots=True)
class ProgramsRun:
    """Programs that ran during faults."""

    problems: tuple[str, ...]
    """Why the run is invalid; empty when it is valid."""
    report: ProgramReport
    events: tuple[Event, ...]
    """The faults, `t_ns` from time 0."""
    metrics: tuple[MetricSeries, ...]
    stages: tuple[Stages, ...] = ()
    """None are measured."""
    health: HealthReport | None = None
    """None without `health`."""
