"""Measures the path of a flow with RoCEv2 packets whose TTL expires at each switch in turn.

For each UDP source port it returns the nodes on the path. Frames are sent raw on the NIC, as by
RoCE hardware, so no socket's hash replaces the switches' own. Switches answer an expired TTL with
ICMP time exceeded (RFC 792), which quotes the probe's UDP source port and its IP identification;
the latter contains the TTL that the probe was sent with.
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
from rocelab.jobs.flow import Endpoints, resolve_endpoints
from rocelab.linux.namespaces import inside
from rocelab.planning.fabric import Fabric, Nic
from rocelab.traffic.roce import probe_frame
from rocelab.wire.headers import ICRC_BYTES, IP_OFFSET, ROCE_PORT, UDP_OFFSET
from rocelab.wire.icrc import icrc

PROBE_QP = 0xFFFFFE
"""Default destination QP of these probes, which identifies them in a capture."""

_BURST = 128
_QUIET_S = 0.2
_ATTEMPTS = 4
_RECEIVE_BUFFER = 8 << 20
_SO_RCVBUFFORCE = 33
_SOL_RAW = 255
_ICMP_FILTER = 1
_TIME_EXCEEDED = 11
_ETH_P_IP = 0x0800

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

    The kernel limits ICMP errors: one a second to each peer (net.ipv4.icmp_ratelimit) and 1,000 a
    second in all (icmp_msgs_per_sec). Both must be off in every switch: icmp_ratelimit 0 and
    icmp_msgs_per_sec high, as the runtime sets them, or time exceeded removed from icmp_ratemask.
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
    names = _names(fabric)
    longest = 2 * max(node.role.tier for node in fabric.nodes)
    trace = _ProbeAnswers(
        source.server, destination.server, {port: {} for port in source_ports}, {}
    )
    with (
        _open(netns_of(source.server), lambda: _sender(ends.interface)) as sender,
        _open(netns_of(source.server), _time_exceeded_listener) as expiries,
        _open(netns_of(destination.server), _listener) as arrivals,
    ):

        def receive(timeout_s: float) -> bool:
            ready, _, _ = select.select([expiries, arrivals], [], [], timeout_s)
            if expiries in ready:
                for packet in drain(expiries):
                    if probe := _expired(packet, tag, destination.ip):
                        address = socket.inet_ntoa(packet[12:16])
                        trace.expire(probe, names.get(address, address))
            if arrivals in ready:
                for packet in drain(arrivals):
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

    source: str
    destination: str
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
            return (self.source, *(answers.get(ttl) for ttl in passed), self.destination)
        last = max(answers, default=0)
        return (self.source, *(answers.get(ttl) for ttl in range(1, last + 1)), None)


class ProbeFrames:
    """Probe frames of one NIC pair: built once, then patched in the changing fields."""

    def __init__(self, endpoints: Endpoints, tag: int, destination_qp: int = PROBE_QP) -> None:
        """`tag` (0 to 255) is in every IP identification and identifies this run.

        Raises ValueError for a QP number of more than 24 bits.
        """
        self._frame = bytearray(probe_frame(endpoints, sport=0, dest_qp=destination_qp, ttl=1))
        self._tag = tag

    def build(self, source_port: int, ttl: int) -> bytes:
        """The frame of a probe, with its IP checksum and ICRC."""
        frame = self._frame
        struct.pack_into("!H", frame, IP_OFFSET + 4, self._tag << 8 | ttl)
        frame[IP_OFFSET + 8] = ttl
        struct.pack_into("!H", frame, IP_OFFSET + 10, 0)
        struct.pack_into("!H", frame, IP_OFFSET + 10, checksum(frame[IP_OFFSET:UDP_OFFSET]))
        struct.pack_into("!H", frame, UDP_OFFSET, source_port)
        frame[-ICRC_BYTES:] = icrc(frame)
        return bytes(frame)


def checksum(header: bytes | bytearray) -> int:
    """The Internet checksum (RFC 1071) of a header, an even number of bytes, whose checksum field
    is zero or omitted."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _probe_in(packet: bytes, tag: int) -> Probe | None:
    """The probe of this run in a packet that starts with its IPv4 header, or None."""
    if len(packet) < 28 or packet[0] != 0x45 or packet[9] != socket.IPPROTO_UDP:
        return None
    source_port, destination_port = struct.unpack_from("!HH", packet, 20)
    if destination_port != ROCE_PORT or packet[4] != tag:
        return None
    return source_port, packet[5]


def _expired(packet: bytes, tag: int, destination: str) -> Probe | None:
    quoted = packet[(packet[0] & 0xF) * 4 + 8 :]
    if quoted[16:20] != socket.inet_aton(destination):
        return None
    return _probe_in(quoted, tag)


def _arrived(packet: bytes, tag: int, source: str) -> Probe | None:
    return _probe_in(packet, tag) if packet[12:16] == socket.inet_aton(source) else None


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


def _time_exceeded_listener() -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    all_others = ~(1 << _TIME_EXCEEDED) & 0xFFFF_FFFF
    listener.setsockopt(_SOL_RAW, _ICMP_FILTER, struct.pack("=I", all_others))
    return _receiving(listener)


def _listener() -> socket.socket:
    """A socket on every interface: a NIC with two ports receives by either."""
    return _receiving(socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(_ETH_P_IP)))


def _receiving(listener: socket.socket) -> socket.socket:
    listener.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BUFFER)
    listener.setblocking(False)
    return listener


def drain(listener: socket.socket) -> Iterator[bytes]:
    """The packets that a socket that does not block has received."""
    while True:
        try:
            yield listener.recv(128)
        except BlockingIOError:
            return
