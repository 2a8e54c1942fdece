"""RoCEv2 frames: every packet that a NIC sends, over IPv4 and IPv6.

From the `Envelope` of a queue pair's direction, an opcode and its headers it builds the complete
Ethernet frame with padding, checksums and ICRC. Senders build one frame of each kind here and patch
it with `rocelab.wire.icrc`, or stamp it with
`rocelab.wire.probe`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from ipaddress import ip_address

from rocelab.jobs.flow import Endpoints
from rocelab.wire.headers import (
    CNP_PAYLOAD_BYTES,
    ICRC_BYTES,
    PSN_MASK,
    ROCE_PORT,
    UDP_BYTES,
    Extension,
    Opcode,
    Syndrome,
    extensions,
    flow_label,
    has_payload,
)
from rocelab.wire.icrc import icrc
from rocelab.wire.probe import MAGIC, MIN_PAYLOAD_BYTES, NO_FLOW, PROBE_HEADER

DSCP_ROCE = 26
"""NICs' default DSCP of RoCE traffic, for lossless queues."""

ECT_0 = 0b10
"""ECN-capable transport (RFC 3168 section 5), so that switches mark packets instead of dropping
them."""

DEFAULT_TTL = 64

PARTITION_KEY = 0xFFFF
ETHERTYPE_IPV4, ETHERTYPE_IPV6 = b"\x08\x00", b"\x86\xdd"
PROTOCOL_UDP = 17
DONT_FRAGMENT = 0x4000
IPV4 = struct.Struct("!BBHHHBBH4s4s")
IPV6 = struct.Struct("!IHBB16s16s")
UDP = struct.Struct("!HHHH")
BTH = struct.Struct("!BBHII")
"""Opcode; solicited, migration, pad count, version; partition key; FECN, BECN, destination QP; ACK
request, PSN (InfiniBand Architecture Specification, 9.2)."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The common fields of all packets of one direction of a queue pair."""

    source_mac: str
    next_hop_mac: str
    source_ip: str
    """Of the same version as `destination_ip`."""

    destination_ip: str
    sport: int
    dest_qp: int
    dscp: int = DSCP_ROCE
    ecn: int = ECT_0
    ttl: int = DEFAULT_TTL
    """IPv6's hop limit too."""

    flow_label: int | None = None
    """IPv6 only; None for the one that goes with the source port."""


@dataclass(frozen=True, slots=True)
class RemoteMemory:
    """RETH: the memory that a whole WRITE or READ message accesses."""

    address: int
    rkey: int
    length_bytes: int


@dataclass(frozen=True, slots=True)
class Immediate:
    """ImmDt: 32 bits for the receiver's completion."""

    data: int


@dataclass(frozen=True, slots=True)
class Invalidate:
    """IETH: the remote key to invalidate."""

    rkey: int


@dataclass(frozen=True, slots=True)
class AtomicOperation:
    """AtomicETH; for FETCH_ADD `swap` is the addend and `compare` is 0."""

    address: int
    rkey: int
    swap: int
    compare: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """AETH: an ACK, NAK or RNR NAK, and the number of messages that the responder has completed."""

    syndrome: Syndrome
    msn: int


@dataclass(frozen=True, slots=True)
class AtomicOriginal:
    """AtomicAckETH: the previous content of the memory."""

    value: int


Header = RemoteMemory | Immediate | Invalidate | AtomicOperation | Acknowledgement | AtomicOriginal


def roce_frame(
    envelope: Envelope,
    opcode: Opcode,
    *headers: Header,
    psn: int,
    payload: bytes = b"",
    ack_request: bool = False,
) -> bytes:
    """One packet as an Ethernet frame, with the opcode's headers in wire order.

    The payload is padded to four bytes. As NICs send it: UDP checksum 0, IPv4 with DF, partition
    key 0xFFFF, and the migration bit set except in CNPs. Raises ValueError if the headers are not
    those of the opcode, the opcode cannot carry the payload, or a number does not fit its field.
    """
    extended = [_extended(header) for header in headers]
    present = tuple(extension for extension, _ in extended)
    if present != extensions(opcode):
        expected = ", ".join(e.value for e in extensions(opcode)) or "no header"
        raise ValueError(f"{opcode.name} has {expected}, got {[e.value for e in present]}")
    if payload and not has_payload(opcode):
        raise ValueError(f"{opcode.name} carries no payload, got {len(payload)} bytes")
    is_cnp = opcode is Opcode.CNP
    if is_cnp and payload != bytes(CNP_PAYLOAD_BYTES):
        raise ValueError(f"the payload of a CNP is {CNP_PAYLOAD_BYTES} zero bytes")
    pad_bytes = -len(payload) % 4
    bth = BTH.pack(
        int(opcode),
        (not is_cnp) << 6 | pad_bytes << 4,
        PARTITION_KEY,
        is_cnp << 30 | _unsigned("dest_qp", envelope.dest_qp, 24),
        int(ack_request) << 31 | _unsigned("psn", psn, 24),
    )
    packet = b"".join((bth, *(header for _, header in extended), payload, bytes(pad_bytes)))
    frame = _up_to_udp(envelope, len(packet) + ICRC_BYTES) + packet
    return frame + icrc(frame + bytes(ICRC_BYTES))


def probe_frame(
    endpoints: Endpoints,
    *,
    sport: int,
    dest_qp: int,
    flow: int = NO_FLOW,
    sequence: int = 0,
    send_ns: int = 0,
    payload_bytes: int = MIN_PAYLOAD_BYTES,
    ttl: int = DEFAULT_TTL,
) -> bytes:
    """One probe as an Ethernet frame: RC SEND_ONLY, DSCP 26, ECT(0), with ICRC and checksums.

    `payload_bytes` counts from the probe's magic, without padding to four bytes and ICRC; `send_ns`
    is CLOCK_REALTIME. With a low `ttl` the frame ends at the ttl-th switch, which answers ICMP time
    exceeded. Raises ValueError if the payload is too small for the probe's own fields.
    """
    if payload_bytes < MIN_PAYLOAD_BYTES:
        raise ValueError(f"a probe needs {MIN_PAYLOAD_BYTES} bytes of payload, got {payload_bytes}")
    envelope = Envelope(
        source_mac=endpoints.source_mac,
        next_hop_mac=endpoints.next_hop_mac,
        source_ip=endpoints.source_ip,
        destination_ip=endpoints.destination_ip,
        sport=sport,
        dest_qp=dest_qp,
        ttl=ttl,
    )
    header = PROBE_HEADER.pack(MAGIC, flow, sequence, send_ns)
    return roce_frame(
        envelope,
        Opcode.RC_SEND_ONLY,
        psn=sequence & PSN_MASK,
        payload=header.ljust(payload_bytes, b"\0"),
    )


def _up_to_udp(envelope: Envelope, udp_payload_bytes: int) -> bytes:
    source, destination = ip_address(envelope.source_ip), ip_address(envelope.destination_ip)
    if source.version != destination.version:
        raise ValueError(f"{envelope.source_ip} and {envelope.destination_ip} differ in version")
    traffic_class = _unsigned("dscp", envelope.dscp, 6) << 2 | _unsigned("ecn", envelope.ecn, 2)
    ttl = _unsigned("ttl", envelope.ttl, 8)
    udp_bytes = UDP_BYTES + udp_payload_bytes
    if source.version == 4:
        kind, length = ETHERTYPE_IPV4, IPV4.size + udp_bytes
        fields = (0x45, traffic_class, length, 0, DONT_FRAGMENT, ttl, PROTOCOL_UDP)
        ip = IPV4.pack(*fields, 0, source.packed, destination.packed)
        ip = IPV4.pack(*fields, _checksum(ip), source.packed, destination.packed)
    else:
        kind = ETHERTYPE_IPV6
        label = flow_label(envelope.sport) if envelope.flow_label is None else envelope.flow_label
        first = 6 << 28 | traffic_class << 20 | _unsigned("flow_label", label, 20)
        ip = IPV6.pack(first, udp_bytes, PROTOCOL_UDP, ttl, source.packed, destination.packed)
    macs = f"{envelope.next_hop_mac}:{envelope.source_mac}".replace(":", "")
    udp = UDP.pack(_unsigned("sport", envelope.sport, 16), ROCE_PORT, udp_bytes, 0)
    return b"".join((bytes.fromhex(macs), kind, ip, udp))


def _checksum(header: bytes) -> int:
    """The Internet checksum (RFC 1071) of a header whose own is 0."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _extended(header: Header) -> tuple[Extension, bytes]:
    match header:
        case RemoteMemory():
            return Extension.RETH, struct.pack(
                "!QII",
                _unsigned("address", header.address, 64),
                _unsigned("rkey", header.rkey, 32),
                _unsigned("length_bytes", header.length_bytes, 32),
            )
        case Immediate():
            return Extension.IMM, struct.pack("!I", _unsigned("immediate data", header.data, 32))
        case Invalidate():
            return Extension.IETH, struct.pack("!I", _unsigned("rkey", header.rkey, 32))
        case AtomicOperation():
            return Extension.ATOMIC, struct.pack(
                "!QIQQ",
                _unsigned("address", header.address, 64),
                _unsigned("rkey", header.rkey, 32),
                _unsigned("swap", header.swap, 64),
                _unsigned("compare", header.compare, 64),
            )
        case Acknowledgement():
            msn = _unsigned("msn", header.msn, 24)
            return Extension.AETH, struct.pack("!I", header.syndrome.byte << 24 | msn)
        case AtomicOriginal():
            value = _unsigned("original value", header.value, 64)
            return Extension.ATOMIC_ACK, struct.pack("!Q", value)


def _unsigned(name: str, value: int, bits: int) -> int:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} is {value}, it has {bits} bits")
    return value
