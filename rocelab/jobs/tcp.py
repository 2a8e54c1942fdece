"""TCP between the ranks of a job: the connections that the kernels of their servers open, and what
of TCP's clock follows the lab's.

A TCP is timers as much as bytes. A lab's rates are those of the modelled network divided by the
dilation, and what the kernel waits is not unless somebody says so: `TcpClock` has the times that
Linux lets a socket have, and says what stays at the machine's clock. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocelab.base.family import Family
from rocelab.base.quantities import duration
from rocelab.base.units import DURATION
from rocelab.jobs.placement import NicRef, nic_of
from rocelab.jobs.transport import CongestionControl, TransportSpec
from rocelab.labfile.base import MS, SECOND
from rocelab.planning.fabric import Fabric
from rocelab.planning.queues import ETHERNET_HEADER_BYTES, ETHERNET_OVERHEAD_BYTES

FIRST_PORT = 20000
"""Ports from here on listen: below those that the kernel gives to senders
(net.ipv4.ip_local_port_range)."""

RTO_MIN_NS = 200 * MS
"""Linux's TCP_RTO_MIN, five times less than RFC 6298 asks for."""

RTO_MIN_LIMIT_NS = 5 * SECOND
"""The most, in the lab's clock, of a timeout that nobody asked for: a drill would wait minutes for
each, and a dilation of thousands makes of 200 ms more than most runs last."""

RTO_MAX_NS = 120 * SECOND
"""The most that Linux lets a socket wait (TCP_RTO_MAX)."""

_HEADER_BYTES = {Family.IPV4: 20 + 20 + 12, Family.IPV6: 40 + 20 + 12}
"""IP, TCP and its time stamps (RFC 7323), which Linux always asks for."""


@dataclass(frozen=True, slots=True)
class TcpPath:
    """A connection over which rank `rank` sends to rank `peer`, and gets its acknowledgements
    back."""

    number: int
    """Unique among the connections of all jobs of a run."""

    rank: int
    peer: int
    source_ip: str
    destination_ip: str
    port: int
    """That the peer listens to."""

    send: int | None = None
    """The send that has the connection for itself; None: all from one rank to the other."""


def tcp_paths(
    fabric: Fabric,
    transport: TransportSpec,
    places: Sequence[NicRef],
    pairs: Iterable[tuple[int, int, int | None]],
    first: int,
    listening: Counter[str],
) -> tuple[TcpPath, ...]:
    """The connections of a job, numbered from `first`, for each pair of ranks that sends, or for
    each send that has its own. `listening` counts the ports of each address across jobs."""
    addresses = [nic_of(fabric, place).ip for place in places]
    ports: dict[int, int] = {}
    paths: list[TcpPath] = []
    for rank, peer, send in dict.fromkeys(pairs):
        if peer not in ports:
            ports[peer] = FIRST_PORT + listening[addresses[peer]]
            listening[addresses[peer]] += 1
        paths += [
            TcpPath(number, rank, peer, addresses[rank], addresses[peer], ports[peer], send)
            for number in range(
                first + len(paths), first + len(paths) + (transport.connections or 1)
            )
        ]
    return tuple(paths)


def payload_bytes(link_mtu: int, family: Family) -> int:
    """The payload of a full segment on links of that MTU."""
    return link_mtu - _HEADER_BYTES[family]


def segment_overhead_bytes(family: Family) -> int:
    """What a segment takes of a cable besides its payload, with preamble, FCS and gap."""
    return _HEADER_BYTES[family] + ETHERNET_HEADER_BYTES + ETHERNET_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class TcpClock:
    """What of TCP's clock follows a lab's, in ns of the lab's clock."""

    dilation: float
    congestion_control: CongestionControl
    wanted_ns: float
    """The least retransmission timeout, of the modelled network."""

    rto_min_ns: int

    def words(self, *, is_settable: bool = True) -> tuple[str, ...]:
        """What is scaled and what is not, a sentence each; empty without dilation. is_settable:
        whether the kernel lets a namespace have a least timeout of its own."""
        if self.dilation == 1:
            return ()
        return (
            f"TCP at dilation {self.dilation:g}: {self._timeouts(is_settable)}.",
            "Not scaled: delayed acknowledgements (40 to 200 ms of the lab), the first timeout of "
            "a connection (1 s) and the longest one (120 s); "
            + f"{_OWN_CLOCK[self.congestion_control]}.",
            "In bytes, and so the same in both clocks: windows, the initial one of 10 segments, "
            "and socket buffers.",
        )

    def _timeouts(self, is_settable: bool) -> str:
        wanted = f"of {DURATION.written(round(self.wanted_ns))} at least"
        if not is_settable:
            return (
                f"retransmission timeouts are not scaled, as this kernel has no setting for it "
                f"(Linux 6.11 has): {duration(RTO_MIN_NS)} of the lab at least, which is "
                f"{duration(RTO_MIN_NS / self.dilation)} modelled"
            )
        if self.rto_min_ns >= self.wanted_ns * self.dilation:
            return f"retransmission timeouts {wanted} are scaled"
        return (
            f"retransmission timeouts {wanted} would be "
            f"{duration(self.wanted_ns * self.dilation)} of the lab and are scaled in part, to "
            f"{duration(self.rto_min_ns)}, which is {duration(self.rto_min_ns / self.dilation)} "
            "modelled"
        )


_OWN_CLOCK = {
    CongestionControl.CUBIC: "CUBIC's window grows by the machine's clock, too fast by the "
    "dilation: take reno, whose clock is round trips alone",
    CongestionControl.BBR: "BBR probes for the least round trip every 10 s of the machine's clock, "
    "for 200 ms",
    CongestionControl.RENO: "Reno's window grows by round trips, which the lab scales",
}


def tcp_clock(transport: TransportSpec, dilation: float) -> TcpClock:
    """The clock of a job's connections on a lab."""
    wanted_ns = RTO_MIN_NS if transport.rto_min is None else transport.rto_min
    limit_ns = RTO_MIN_LIMIT_NS if transport.rto_min is None else RTO_MAX_NS
    # A kernel's timers have ticks of milliseconds.
    rto_min_ns = max(MS, min(round(wanted_ns * dilation), limit_ns))
    control = transport.congestion_control or CongestionControl.CUBIC
    return TcpClock(dilation, control, wanted_ns, rto_min_ns)
