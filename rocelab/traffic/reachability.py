"""Tests whether every NIC of a lab reaches every other: one packet per pair and direction, in one
batch.

The result has the ordered pairs of NICs whose packets did not arrive. A packet is an unsolicited
ICMP or ICMPv6 echo reply: a kernel accepts it without an answer, so each direction is tested
separately. It leaves by its own NIC, like RoCE packets and unlike a server's default route.
Switches route and hash it like any ICMP packet, so it takes one of the equal paths; `rocelab path
--probe` finds a broken link among several.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

from rocelab.base.errors import InputError, MachineError
from rocelab.base.family import Family
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.lab.runtime import raise_descriptor_limit
from rocelab.linux.namespaces import inside
from rocelab.planning.fabric import Fabric, Link, Nic
from rocelab.planning.tenancy import next_hop_mac
from rocelab.planning.tenant import Tenant
from rocelab.traffic.traceroute import checksum, drain, icmp_socket

QUIET_S = (0.2, 0.5, 1.0)
"""How long nothing may arrive before the next attempt, or the end, by attempt."""
MOST_NAMES = 6
"""Limits the destinations in a row of `failures`."""
MOST_PAIRS = 250_000
"""So that a run ends within about a minute: 65,280 pairs took 17 s on two busy cores."""
_BURST = 64
_RECEIVE_BUFFER = 4 << 20
_SO_RCVBUFFORCE = 33
_ECHO_REPLY = {Family.IPV4: 0, Family.IPV6: 129}
_TTL = 64
_IPV4_BYTES, _ICMP_BYTES = 20, 16

Pair = tuple[int, int]
"""Indexes of the source and the destination in a list of NICs."""


@dataclass(frozen=True, slots=True)
class Reachability:
    """The result: `nics` by name, and which of the ordered `pairs` failed. `all_pairs`: how many
    the lab has; more than `pairs` if a sample of them was tested."""

    nics: tuple[str, ...]
    pairs: int
    all_pairs: int
    failed: tuple[tuple[str, str], ...]
    took_s: float
    segments: tuple[tuple[str, ...], ...] = ()
    """The NICs of each tenant, and those of none: only NICs of one segment are pairs. Empty without
    tenants."""


def nics_of(fabric: Fabric) -> tuple[Nic, ...]:
    """Every NIC of every server, in the fabric's order."""
    return tuple(nic for server in fabric.servers for nic in fabric.nics(server.name))


def nic_names(fabric: Fabric, nics: Sequence[Nic]) -> tuple[str, ...]:
    """`srv1-1`, or `srv1-1:2` for the second NIC of a server with several."""
    return tuple(
        f"{nic.server}:{nic.number}" if len(fabric.nics(nic.server)) > 1 else nic.server
        for nic in nics
    )


def counted_pairs(nics: Sequence[Nic]) -> int:
    """The number of ordered pairs of NICs of two servers."""
    of_server = Counter(nic.server for nic in nics)
    return sum(count * (len(nics) - count) for count in of_server.values())


def segments_of(fabric: Fabric, nics: Sequence[Nic]) -> list[list[int]]:
    """The indexes of NICs that reach each other: all, or those of each tenant."""
    segments: dict[Tenant | None, list[int]] = {}
    for index, nic in enumerate(nics):
        segments.setdefault(fabric.tenant_of(nic) if fabric.tenants else None, []).append(index)
    return list(segments.values())


def sampled_pairs(nics: Sequence[Nic], most: int) -> Iterator[Pair]:
    """At most so many of the pairs, the same each time: each NIC sends to as many others as any
    other does, one more or less, and to near and far ones alike."""
    if len(nics) < 2:
        return iter(())
    steps = min(len(nics) - 1, -(-most // len(nics)))
    chosen = [1 + place * (len(nics) - 1) // steps for place in range(steps)]
    return islice(pairs_of(nics, chosen), most)


def pairs_of(nics: Sequence[Nic], steps: Iterable[int] | None = None) -> Iterator[Pair]:
    """Every ordered pair of NICs of two servers, in an order in which consecutive pairs share
    neither source nor destination, so that the load spreads over the ports' queues. `steps`: only
    pairs of NICs that are so far apart."""
    for step in range(1, len(nics)) if steps is None else steps:
        for source in range(len(nics)):
            destination = (source + step) % len(nics)
            if nics[source].server != nics[destination].server:
                yield source, destination


def failures(reachability: Reachability) -> Iterator[tuple[str, str]]:
    """Rows of sources and unreached destinations: `any` for all."""
    by_source: dict[str, list[str]] = defaultdict(list)
    by_destination: dict[str, list[str]] = defaultdict(list)
    for source, destination in reachability.failed:
        by_source[source].append(destination)
        by_destination[destination].append(source)
    counts = Counter(map(server_of, reachability.nics))
    sizes = {name: len(segment) for segment in reachability.segments for name in segment}

    def is_all(name: str, lost: list[str]) -> bool:
        return len(lost) == sizes.get(name, len(reachability.nics)) - counts[server_of(name)]

    silent = {name for name, lost in by_source.items() if is_all(name, lost)}
    deaf = {name for name, lost in by_destination.items() if is_all(name, lost)}
    for name in reachability.nics:
        if name in silent:
            yield name, "any"
        if name in deaf:
            yield "any", name
    for source, lost in by_source.items():
        rest = [pair for pair in lost if pair not in deaf]
        if source not in silent and rest:
            more = f" and {len(rest) - MOST_NAMES} more" if len(rest) > MOST_NAMES else ""
            yield source, ", ".join(rest[:MOST_NAMES]) + more


def server_of(nic: str) -> str:
    """The server of a NIC of that name, such as srv1-1:2."""
    return nic.partition(":")[0]


class Frames:
    """The frames of one run, marked with `tag` (16 bits)."""

    def __init__(self, nics: Sequence[Nic], tag: int, family: Family) -> None:
        self._tag = tag
        self._family = family
        self._addresses = [socket.inet_pton(family.number, nic.ip) for nic in nics]

    def build(self, pair: Pair, link: Link, next_hop: str | None = None) -> bytes:
        """The frame that leaves by `link`, a port of the pair's source, to the MAC address
        `next_hop`, or to the switch's port."""
        source, destination = pair
        ethernet = (
            _mac(next_hop or link.b.mac)
            + _mac(link.a.mac)
            + self._family.ethertype.to_bytes(2, "big")
        )
        ends = self._addresses[source] + self._addresses[destination]
        rest = struct.pack("!HHII", self._tag, 0, source, destination)
        kind = struct.pack("!BB", _ECHO_REPLY[self._family], 0)
        if self._family is Family.IPV4:
            length = _IPV4_BYTES + _ICMP_BYTES
            protocol = socket.IPPROTO_ICMP
            start = struct.pack("!BBHHHBB", 0x45, 0, length, self._tag, 0, _TTL, protocol)
            header = start + struct.pack("!H", checksum(start + ends)) + ends
            sum_of = checksum(kind + rest)
        else:
            protocol = socket.IPPROTO_ICMPV6
            header = struct.pack("!IHBB", 6 << 28, _ICMP_BYTES, protocol, _TTL) + ends
            # RFC 4443 section 2.3: with the addresses, the length and the next header.
            sum_of = checksum(ends + struct.pack("!II", _ICMP_BYTES, protocol) + kind + rest)
        return ethernet + header + kind + struct.pack("!H", sum_of) + rest

    def read(self, packet: bytes, sender: str) -> Pair | None:
        """The pair of an ICMP packet that came from that address, one of IPv4 with its IP header;
        None if it is not of this run."""
        start = _IPV4_BYTES if self._family is Family.IPV4 else 0
        if len(packet) < start + _ICMP_BYTES or (start and packet[0] != 0x45):
            return None
        kind, tag, source, destination = struct.unpack_from("!BxxxHxxII", packet, start)
        if (
            kind != _ECHO_REPLY[self._family]
            or tag != self._tag
            or max(source, destination) >= len(self._addresses)
        ):
            return None
        is_source = socket.inet_pton(self._family.number, sender) == self._addresses[source]
        return (source, destination) if is_source else None


def probe_reachability(
    fabric: Fabric,
    netns_of: Callable[[str], Path],
    progress: ProgressSink = no_progress,
    *,
    most_pairs: int | None = None,
) -> Reachability:
    """Send a packet from every NIC to those of all other servers, up to three times if it is lost;
    with `most_pairs` to a sample of them.

    A NIC with two ports sends by both, and reaches a NIC if either does. Raises InputError for more
    than MOST_PAIRS without `most_pairs`, OSError if a namespace cannot be entered, MachineError
    without CAP_NET_RAW or with too few open files.
    """
    started_s = time.monotonic()
    nics = nics_of(fabric)
    names = nic_names(fabric, nics)
    segments = segments_of(fabric, nics)
    all_pairs = sum(counted_pairs([nics[index] for index in segment]) for segment in segments)
    if most_pairs is None and all_pairs > MOST_PAIRS:
        raise InputError(
            f"{len(nics):,} NICs are {all_pairs:,} pairs, which take up to "
            f"{-(-all_pairs // MOST_PAIRS)} minutes",
            hint="--pairs 100000 tests a sample in which every NIC sends and receives",
        )
    pairs = dict.fromkeys(_chosen_pairs(nics, segments, most_pairs))
    missing = _lost(fabric, nics, pairs, netns_of, progress)
    failed = tuple((names[source], names[destination]) for source, destination in missing)
    named = tuple(tuple(names[index] for index in segment) for segment in segments)
    return Reachability(
        names,
        len(pairs),
        all_pairs,
        failed,
        time.monotonic() - started_s,
        named if fabric.tenants else (),
    )


def probe_crossings(
    fabric: Fabric, netns_of: Callable[[str], Path], progress: ProgressSink = no_progress
) -> tuple[tuple[str, str], ...]:
    """The pairs of NICs of different networks, by name, of which one reaches the other: none as
    long as nothing routes between networks. At most MOST_PAIRS pairs are probed. Raises as
    `probe_reachability` does."""
    nics = nics_of(fabric)
    network_of = {nic.ip: part.network_name for part in fabric.parts for nic in nics_of(part)}
    names = tuple(
        f"{network_of[nic.ip]} {name}"
        for nic, name in zip(nics, nic_names(fabric, nics), strict=True)
    )
    across = (
        pair
        for pair in pairs_of(nics)
        if network_of[nics[pair[0]].ip] != network_of[nics[pair[1]].ip]
    )
    pairs = dict.fromkeys(islice(across, MOST_PAIRS))
    lost = set(_lost(fabric, nics, pairs, netns_of, progress, attempts=1))
    return tuple(
        (names[source], names[destination])
        for source, destination in sorted(pairs)
        if (source, destination) not in lost
    )


def _lost(
    fabric: Fabric,
    nics: Sequence[Nic],
    pairs: Iterable[Pair],
    netns_of: Callable[[str], Path],
    progress: ProgressSink,
    attempts: int = len(QUIET_S),
) -> list[Pair]:
    """Of these pairs, in order, those whose packet does not arrive. Raises as
    `probe_reachability` does."""
    frames = Frames(nics, int.from_bytes(os.urandom(2), "big"), fabric.family)
    missing = dict.fromkeys(pairs)
    total = len(missing)
    with ExitStack() as stack:
        senders, listeners = _open(fabric.family, nics, netns_of, stack)
        poll = select.epoll()
        stack.callback(poll.close)
        for listener in listeners:
            poll.register(listener, select.EPOLLIN)
        by_descriptor = {listener.fileno(): listener for listener in listeners}

        def receive(timeout_s: float) -> bool:
            ready = poll.poll(timeout_s)
            for descriptor, _ in ready:
                for packet, sender in drain(by_descriptor[descriptor]):
                    pair = frames.read(packet, sender)
                    if pair is not None:
                        missing.pop(pair, None)
            return bool(ready)

        for quiet_s in QUIET_S[:attempts]:
            for number, pair in enumerate(list(missing), start=1):
                source = nics[pair[0]]
                for link in source.links:
                    next_hop = next_hop_mac(fabric, link, nics[pair[1]])
                    _send(senders[source.server], link, frames.build(pair, link, next_hop))
                if number % _BURST == 0:
                    receive(0)
                    progress(Progress("pairs", total - len(missing), total))
            while missing and receive(quiet_s):
                pass
            progress(Progress("pairs", total - len(missing), total))
    return sorted(missing)


def _chosen_pairs(
    nics: Sequence[Nic], segments: Sequence[Sequence[int]], most: int | None
) -> Iterator[Pair]:
    """The pairs within each segment, or a sample of as many of each NIC."""
    for segment in segments:
        part = [nics[index] for index in segment]
        share = None if most is None else -(-most * len(segment) // len(nics))
        pairs = pairs_of(part) if share is None else sampled_pairs(part, share)
        yield from ((segment[source], segment[destination]) for source, destination in pairs)


def _open(
    family: Family, nics: Sequence[Nic], netns_of: Callable[[str], Path], stack: ExitStack
) -> tuple[Mapping[str, socket.socket], Sequence[socket.socket]]:
    """A socket that sends for each server, by its name, and one that receives for each."""
    servers = dict.fromkeys(nic.server for nic in nics)
    raise_descriptor_limit(2 * len(servers) + 256)
    senders: dict[str, socket.socket] = {}
    listeners = []
    stack.callback(_close, senders)

    def open_server(server: str) -> socket.socket:
        senders[server] = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        senders[server].setblocking(False)
        listener = stack.enter_context(icmp_socket(family, _ECHO_REPLY[family]))
        listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
        listener.setblocking(False)
        return listener

    for server in servers:
        try:
            listeners.append(inside(netns_of(server), partial(open_server, server)))
        except PermissionError as error:
            raise MachineError(
                f"no permission to send raw frames in {server}: {error}",
                hint="run as root, or with CAP_NET_RAW and CAP_SYS_ADMIN",
            ) from error
    return senders, listeners


def _close(senders: Mapping[str, socket.socket]) -> None:
    """The kernel waits an RCU grace period for each packet socket (packet_release, net/packet/
    af_packet.c): sockets that are closed together wait for the same one."""
    with ThreadPoolExecutor(max_workers=64) as pool:
        list(pool.map(socket.socket.close, senders.values()))


def _send(sender: socket.socket, link: Link, frame: bytes) -> None:
    try:
        sender.sendto(frame, (link.a.interface, 0))
    except OSError:
        return  # a port that is down, or whose queue is full: its packets count as lost


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))
