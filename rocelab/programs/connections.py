"""Watches the TCP connections of a lab's servers from outside: goodput, retransmissions, round
trips and stalls, by the kernel's own figures.

A connection is seen from each of its ends, and belongs to the one that sent more. Its bytes are
exact, since the kernel tells of each socket that ends; its stalls are those that samples show: of
what happened between two samples only the last acknowledgement is known.
"""

from __future__ import annotations

import errno
import socket
from array import array
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import CLOCK_REALTIME, clock_gettime_ns, monotonic

from rocelab.linux import namespaces, sockets
from rocelab.linux.closing import Holding
from rocelab.linux.netlink import DATAGRAM_BYTES
from rocelab.linux.sockets import ConnectionEnd
from rocelab.results.programs import Stall, TcpConnection

STALL_NS = 100_000_000
"""Without an acknowledgement for this long, a sender that has something to send stalls."""

INTERVAL_S = 0.05
_SHARE_OF_CPU = 0.05
"""The most of one CPU that sampling takes: where connections are many, samples are fewer."""


@dataclass(slots=True)
class _Seen:
    """A socket as the samples so far show it. Times in ns, CLOCK_REALTIME."""

    end: ConnectionEnd
    began_ns: int
    seen_ns: int
    progress_ns: int
    """When an acknowledgement was last seen, or nothing was waiting."""

    stalls: list[Stall]
    least_trips: int
    rtts_us: array[int] = field(default_factory=lambda: array("I"))
    """At samples in which it had something to send."""

    def update(self, end: ConnectionEnd, now_ns: int) -> None:
        if end.acked_bytes > self.end.acked_bytes:
            self._conclude(now_ns - end.silent_ms * 10**6)
        elif not self.end.waits:
            self._conclude(now_ns)
        if end.waits and end.rtt_us:
            self.rtts_us.append(end.rtt_us)
        self.end, self.seen_ns = end, now_ns

    def _conclude(self, at_ns: int) -> None:
        self.stalls = self.stalls_until(at_ns)
        self.progress_ns = at_ns

    def stalls_until(self, now_ns: int) -> list[Stall]:
        """All stalls, with one that lasts on. One is known only if the last sample showed it: what
        was acknowledged since then may have come bit by bit."""
        limit_ns = max(STALL_NS, self.least_trips * self.end.rtt_us * 1000)
        if self.end.waits and self.seen_ns - self.progress_ns >= limit_ns:
            return [*self.stalls, Stall(self.progress_ns, now_ns)]
        return self.stalls


class ConnectionWatch(Holding):
    """The connections of some servers of a lab, within a context. Raises OSError."""

    def __init__(
        self,
        netns: Sequence[Path],
        name_of: Mapping[str, str],
        least_trips: int = 0,
        network_of: Mapping[str, str | None] | None = None,
    ) -> None:
        """netns: each server's namespace. `name_of`: the name of each address of the lab;
        connections with another address, such as loopback's, are left out. A stall is longer than
        STALL_NS and than `least_trips` smoothed round trips. `network_of`: the network of each
        address, in a lab with several."""
        self._netns, self._name_of, self._least_trips = netns, name_of, least_trips
        self._network_of = network_of or {}
        self._seen: dict[bytes, _Seen] = {}
        self._delivered: list[tuple[int, int]] = []
        self.lost_events = False
        """Whether the kernel had more to tell than was read, so that bytes may be missing."""
        self.longest_interval_ns = 0
        """The longest time between two samples."""
        self._sampled_s = self._due_s = 0.0

    def _enter(self, stack: ExitStack) -> None:
        self._channels: list[tuple[socket.socket, socket.socket]] = []
        for netns in self._netns:
            channel, watch = namespaces.inside(
                netns, lambda: (sockets.open_socket(), sockets.open_watch())
            )
            self._channels.append((stack.enter_context(channel), stack.enter_context(watch)))
        self._sampled_s = monotonic()
        self._due_s = self._sampled_s + INTERVAL_S

    @property
    def due_in_s(self) -> float:
        """The time until the next sample is due; 0 or less: now."""
        return self._due_s - monotonic()

    def sample(self) -> None:
        """Read every connection now, and those that ended since the last sample. Raises OSError."""
        began_s = monotonic()
        for channel, watch in self._channels:
            now_ns = clock_gettime_ns(CLOCK_REALTIME)
            for end in self._ended(watch):
                self._note(end, now_ns)
            for end in sockets.connections(channel):
                self._note(end, now_ns)
        total = sum(seen.end.delivered_bytes for seen in self._seen.values())
        self._delivered.append((clock_gettime_ns(CLOCK_REALTIME), total))
        now_s = monotonic()
        since_ns = round((now_s - self._sampled_s) * 1e9)
        self.longest_interval_ns = max(self.longest_interval_ns, since_ns)
        self._sampled_s = now_s
        self._due_s = now_s + max(INTERVAL_S, (now_s - began_s) / _SHARE_OF_CPU)

    @property
    def has_seen_some(self) -> bool:
        """Whether any sample has shown a connection."""
        return bool(self._seen)

    def delivered(self, zero_ns: int) -> tuple[tuple[int, int], ...]:
        """The instant of each sample, in ns after `zero_ns`, and the bytes that all connections had
        delivered until then."""
        return tuple((at_ns - zero_ns, total) for at_ns, total in self._delivered)

    def connections(self, zero_ns: int) -> tuple[TcpConnection, ...]:
        """The connections so far, those that delivered most first, without the ends that only
        received; their instants count from `zero_ns`."""
        rows = [
            TcpConnection(
                source=self._name_of[seen.end.address],
                source_port=seen.end.port,
                destination=self._name_of[seen.end.peer],
                destination_port=seen.end.peer_port,
                began_ns=seen.began_ns - zero_ns,
                ended_ns=seen.seen_ns - zero_ns,
                delivered_bytes=seen.end.delivered_bytes,
                resent_bytes=seen.end.resent_bytes,
                rtt_us=seen.end.rtt_us,
                min_rtt_us=seen.end.min_rtt_us,
                stalls=tuple(
                    Stall(stall.began_ns - zero_ns, stall.ended_ns - zero_ns)
                    for stall in seen.stalls_until(seen.seen_ns)
                ),
                network=self._network_of.get(seen.end.address),
            )
            for seen in self._seen.values()
            if seen.end.delivered_bytes
        ]
        return tuple(sorted(rows, key=lambda connection: -connection.delivered_bytes))

    def rtts_us(self, address: str, port: int) -> tuple[int, ...]:
        """Smoothed round trips of the connections to that address and port, at each sample in
        which they had something to send."""
        return tuple(
            rtt_us
            for seen in self._seen.values()
            if (seen.end.peer, seen.end.peer_port) == (address, port)
            for rtt_us in seen.rtts_us
        )

    def _ended(self, watch: socket.socket) -> Sequence[ConnectionEnd]:
        ends: list[ConnectionEnd] = []
        while True:
            try:
                ends += sockets.parsed(watch.recv(DATAGRAM_BYTES))
            except BlockingIOError:
                return ends
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                self.lost_events = True

    def _note(self, end: ConnectionEnd, now_ns: int) -> None:
        if end.address not in self._name_of or end.peer not in self._name_of:
            return
        if end.cookie in self._seen:
            self._seen[end.cookie].update(end, now_ns)
        else:
            self._seen[end.cookie] = _Seen(end, now_ns, now_ns, now_ns, [], self._least_trips)
