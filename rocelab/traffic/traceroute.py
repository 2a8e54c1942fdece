"""Measures the path of a flow with RoCEv2 packets whose TTL expires at each switch in turn.

For each UDP source port it returns the nodes on the path. Frames are sent raw on the NIC, as by
RoCE hardware, so no socket's hash replaces the switches' own. Switches answer an expired TTL with
ICMP time exceeded (RFC 792, RFC 4443), which quotes the probe's UDP source port and the TTL that it
was sent with: in the IP identification, or for IPv6, which has none, in the BTH's PSN.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.base.errors import MachineError
from rocelab.base.family import Family
from rocelab.jobs.flow import Endpoints, resolve_endpoints
from rocelab.linux.namespaces import inside
from rocelab.planning.fabric import Fabric, Nic
from rocelab.planning.tenancy import leaf_of
from rocelab.traffic.roce import probe_frame
from rocelab.wire.headers import (
    ICRC_BYTES,
    IP_OFFSET,
    OFFSETS,
    ROCE_PORT,
    UDP_BYTES,
    UDP_OFFSET,
    set_source_port,
)
from rocelab.wire.icrc import icrc
from rocelab.wire.vxlan import VXLAN_BYTES

PROBE_QP = 0xFFFFFE
"""Default destination QP of these probes, which identifies them in a capture."""

_BURST = 128
_QUIET_S = 0.2
_ATTEMPTS = 4
_RECEIVE_BUFFER = 8 << 20
_SO_RCVBUFFORCE = 33
_TIME_EXCEEDED = {Family.IPV4: 11, Family.IPV6: 3}
_ICMP_BYTES = 8
_MOST_BYTES = 128 + VXLAN_BYTES
_SOL_RAW = 255
_ICMP_FILTER = _ICMP6_FILTER = 1
_UDP = socket.IPPROTO_UDP
_PLACE_IN_IP = {Family.IPV4: 4, Family.IPV6: OFFSETS[Family.IPV6].psn - IP_OFFSET + 2}
"""Where probes have the run's tag and their TTL, a byte each: in the identification, or the lower
16 bits of the PSN."""

Nodes = tuple[str | None, ...]
Probe = tuple[int, int]
"""UDP source port and TTL."""


def probe_path(
    fabric: Fabric,
    netns_of: Callable[[str], Path],
    source: Nic,
    destination: Nic,
    source_ports: Sequence[int],
    *,
    leaves_by: int = 0,
    destination_qp: int = PROBE_QP,
) -> dict[int, Nodes]:
    """For each UDP source port the nodes from the source to the destination server, for packets to
    `destination_qp` by port `leaves_by` (from 0) of the NIC.

    If each packet or flowlet chooses its path at random, these are nodes on some packets' paths.

    None is a hop that did not answer, and ends the path of a flow that did not arrive. A switch may
    answer from any of its addresses; an answer from an address outside the fabric appears as that
    address.

    The kernel limits ICMP errors: one a second to each peer (net.ipv4.icmp_ratelimit,
    net.ipv6.icmp.ratelimit) and 1,000 a second in all (icmp_msgs_per_sec). Both must be off in
    every switch: a rate limit of 0 and icmp_msgs_per_sec high, as the runtime sets them, or time
    exceeded removed from icmp_ratemask.
    Unanswered probes are sent again, at most three times.

    Raises OSError if a namespace cannot be entered, MachineError without CAP_NET_RAW, InputError if
    both NICs are on one server.
    """
    tag = os.urandom(1)[0]
    ends = resolve_endpoints(
        fabric,
        source.server,
        destination.server,
        source.number,
        destination.number,
        leaves_by,
    )
    frames = ProbeFrames(ends, tag, destination_qp)
    names, family = _names(fabric), fabric.family
    longest = fabric.most_hops + 1  # a packet arrives with one more than it passes switches
    # Switches answer who sent the outer packet; the leaf sends it with the TTL of the one inside.
    answered_to, quoted_from = source.server, 0
    before: Nodes = ()
    after: Nodes = ()
    if fabric.tenant_of(source) is not None:
        answered_to, quoted_from = leaf_of(source), VXLAN_BYTES
        before, after = (leaf_of(source),), (leaf_of(destination),)
        after = () if after == before else after
    trace = _ProbeAnswers(
        (source.server, *before),
        (*after, destination.server),
        {port: {} for port in source_ports},
        {},
    )
    with (
        _open(netns_of(source.server), lambda: _sender(ends.interface)) as sender,
        _open(netns_of(answered_to), lambda: _time_exceeded_listener(family)) as expiries,
        _open(netns_of(destination.server), lambda: _listener(family)) as arrivals,
    ):

        def receive(timeout_s: float) -> bool:
            ready, _, _ = select.select([expiries, arrivals], [], [], timeout_s)
            if expiries in ready:
                for packet, address in drain(expiries):
                    if probe := _expired(packet, tag, destination.ip, quoted_from):
                        trace.expire(probe, names.get(address, address))
            if arrivals in ready:
                for packet, _ in drain(arrivals):
                    if probe := _arrived(packet, tag, source.ip):
                        trace.arrive(probe)
            return bool(ready)

        for _ in range(_ATTEMPTS):
            missing = list(trace.missing(longest))
            for start in range(0, len(missing), _BURST):
                for port, ttl in missing[start : start + _BURST]:
                    sender.send(frames.build(port, ttl))
                receive(0)
            quiet_at = time.monotonic() + _QUIET_S
            while time.monotonic() < quiet_at and any(trace.missing(longest)):
                if receive(_QUIET_S):
                    quiet_at = time.monotonic() + _QUIET_S
    return {port: trace.nodes(port) for port in source_ports}


@dataclass(frozen=True, slots=True)
class _ProbeAnswers:
    """The answers so far: per source port, the sender of the answer at each TTL, and the TTL that
    arrived."""

    source: Nodes
    """The source server, and the leaf by which its packets enter a tunnel, if one carries them:
    that answers no expired TTL."""
    destination: Nodes
    """The same at the other end."""
    answers: dict[int, dict[int, str]]
    arrived: dict[int, int]

    def expire(self, probe: Probe, node: str) -> None:
        port, ttl = probe
        if port in self.answers:
            self.answers[port][ttl] = node

    def arrive(self, probe: Probe) -> None:
        port, ttl = probe
        if port in self.answers:
            self.arrived[port] = min(ttl, self.arrived.get(port, ttl))

    def missing(self, longest: int) -> Iterable[Probe]:
        """The probes below the lowest TTL that arrived that are still unanswered."""
        for port, answers in self.answers.items():
            end = self.arrived.get(port, longest + 1)
            for ttl in range(1, end):
                if ttl not in answers:
                    yield port, ttl

    def nodes(self, port: int) -> Nodes:
        answers = self.answers[port]
        if port in self.arrived:
            passed = range(1, self.arrived[port])
            return (*self.source, *(answers.get(ttl) for ttl in passed), *self.destination)
        last = max(answers, default=0)
        return (*self.source, *(answers.get(ttl) for ttl in range(1, last + 1)), None)


class ProbeFrames:
    """Probe frames of one NIC pair: built once, then patched in the changing fields."""

    def __init__(self, endpoints: Endpoints, tag: int, destination_qp: int = PROBE_QP) -> None:
        """`tag` (0 to 255) is in every frame, beside its TTL, and identifies this run.

        Raises ValueError for a QP number of more than 24 bits.
        """
        self._frame = bytearray(probe_frame(endpoints, sport=0, dest_qp=destination_qp, ttl=1))
        self._tag = tag
        self._family = Family.of(endpoints.source_ip)

    def build(self, source_port: int, ttl: int) -> bytes:
        """The frame of a probe, with its IP checksum and ICRC."""
        frame, family = self._frame, self._family
        place = IP_OFFSET + _PLACE_IN_IP[family]
        struct.pack_into("!H", frame, place, self._tag << 8 | ttl)
        if family is Family.IPV4:
            frame[IP_OFFSET + 8] = ttl
            struct.pack_into("!H", frame, IP_OFFSET + 10, 0)
            struct.pack_into("!H", frame, IP_OFFSET + 10, checksum(frame[IP_OFFSET:UDP_OFFSET]))
        else:
            frame[IP_OFFSET + 7] = ttl
        set_source_port(frame, family, source_port)
        frame[-ICRC_BYTES:] = icrc(frame)
        return bytes(frame)


def checksum(header: bytes | bytearray) -> int:
    """The Internet checksum (RFC 1071) of a header, an even number of bytes, whose checksum field
    is zero or omitted."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _probe_in(packet: bytes, tag: int, family: Family) -> Probe | None:
    """The probe of this run in a packet that starts with its IP header, or None."""
    udp, place = OFFSETS[family].udp - IP_OFFSET, _PLACE_IN_IP[family]
    if len(packet) < max(udp + UDP_BYTES, place + 2):
        return None
    is_udp = (packet[0], packet[9]) == (0x45, _UDP) if family is Family.IPV4 else packet[6] == _UDP
    source_port, destination_port = struct.unpack_from("!HH", packet, udp)
    if not is_udp or destination_port != ROCE_PORT or packet[place] != tag:
        return None
    return source_port, packet[place + 1]


def _expired(packet: bytes, tag: int, destination: str, start: int) -> Probe | None:
    """The probe that an ICMP message quotes, `start` bytes after the quoted packet's start; one of
    IPv4 comes with its IP header."""
    family = Family.of(destination)
    quoted = packet[_ICMP_BYTES + ((packet[0] & 0xF) * 4 if family is Family.IPV4 else 0) + start :]
    end = OFFSETS[family].udp - IP_OFFSET
    if quoted[end - family.bits // 8 : end] != socket.inet_pton(family.number, destination):
        return None
    return _probe_in(quoted, tag, family)


def _arrived(packet: bytes, tag: int, source: str) -> Probe | None:
    family = Family.of(source)
    size = family.bits // 8
    start = OFFSETS[family].udp - IP_OFFSET - 2 * size
    if packet[start : start + size] != socket.inet_pton(family.number, source):
        return None
    return _probe_in(packet, tag, family)


def _names(fabric: Fabric) -> Mapping[str, str]:
    names = {node.loopback: node.name for node in fabric.nodes if node.loopback}
    for link in fabric.links:
        for port in (link.a, link.b):
            if port.address is not None:
                names[port.ip] = port.node
    return names


def _open(netns: Path, make: Callable[[], socket.socket]) -> socket.socket:
    try:
        return inside(netns, make)
    except PermissionError as error:
        raise MachineError(
            f"no permission to send raw frames in {netns}: {error}",
            hint="run as root, or with CAP_NET_RAW and CAP_SYS_ADMIN",
        ) from error


def _sender(interface: str) -> socket.socket:
    sender = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sender.bind((interface, 0))
    return sender


def _time_exceeded_listener(family: Family) -> socket.socket:
    return _receiving(icmp_socket(family, _TIME_EXCEEDED[family]))


def icmp_socket(family: Family, kind: int) -> socket.socket:
    """A socket that receives ICMP messages of one type. Raises PermissionError without
    CAP_NET_RAW."""
    if family is Family.IPV4:
        listener = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        others = struct.pack("=I", ~(1 << kind) & 0xFFFF_FFFF)
        listener.setsockopt(_SOL_RAW, _ICMP_FILTER, others)
        return listener
    listener = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)
    blocked = (~(1 << kind) & (1 << 256) - 1).to_bytes(32, "little")
    listener.setsockopt(socket.IPPROTO_ICMPV6, _ICMP6_FILTER, blocked)
    return listener


def _listener(family: Family) -> socket.socket:
    """A socket on every interface: a NIC with two ports receives by either."""
    protocol = socket.htons(family.ethertype)
    return _receiving(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, protocol))


def _receiving(listener: socket.socket) -> socket.socket:
    listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    listener.setblocking(False)
    return listener


def drain(listener: socket.socket) -> Iterator[tuple[bytes, str]]:
    """The packets that a socket that does not block has received, and the address or interface that
    each came from."""
    while True:
        try:
            packet, sender = listener.recvfrom(_MOST_BYTES)
        except BlockingIOError:
            return
        yield packet, sender[0]
