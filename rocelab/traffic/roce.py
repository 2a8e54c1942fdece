"""RoCEv2 frames built with Scapy: every packet that a NIC sends, over IPv4 and IPv6.

From the `Envelope` of a queue pair's direction, an opcode and its headers it builds the complete
Ethernet frame with padding, checksums and ICRC. Building takes milliseconds; senders build one
frame of each kind here and patch it with `rocelab.wire.icrc`, or stamp it with
`rocelab.wire.probe`.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

from rocelab.jobs.flow import Endpoints
from rocelab.traffic.roce_layers import IETH, RETH, AtomicAckETH, AtomicETH, ImmDt
from rocelab.wire.headers import (
    CNP_PAYLOAD_BYTES,
    PSN_MASK,
    ROCE_PORT,
    Extension,
    Opcode,
    Syndrome,
    extensions,
    has_payload,
)
from rocelab.wire.probe import MAGIC, MIN_PAYLOAD_BYTES, NO_FLOW, PROBE_HEADER

DSCP_ROCE = 26
"""NICs' default DSCP of RoCE traffic, for lossless queues."""

ECT_0 = 0b10
"""ECN-capable transport (RFC 3168 section 5), so that switches mark packets instead of dropping
them."""

DEFAULT_TTL = 64


@dataclass(frozen=True, slots=True)
class Envelope:
    """The common fields of all packets of one direction of a queue pair.

    Both IP addresses have the same version. `ttl` is IPv6's hop limit too; `flow_label` is IPv6
    only.
    """

    source_mac: str
    next_hop_mac: str
    source_ip: str
    destination_ip: str
    sport: int
    dest_qp: int
    dscp: int = DSCP_ROCE
    ecn: int = ECT_0
    ttl: int = DEFAULT_TTL
    flow_label: int = 0


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
    layers = [_layer(header) for header in headers]
    present = tuple(extension for extension, _ in layers)
    if present != extensions(opcode):
        expected = ", ".join(e.value for e in extensions(opcode)) or "no header"
        raise ValueError(f"{opcode.name} has {expected}, got {[e.value for e in present]}")
    if payload and not has_payload(opcode):
        raise ValueError(f"{opcode.name} carries no payload, got {len(payload)} bytes")
    is_cnp = opcode is Opcode.CNP
    if is_cnp and payload != bytes(CNP_PAYLOAD_BYTES):
        raise ValueError(f"the payload of a CNP is {CNP_PAYLOAD_BYTES} zero bytes")
    pad_bytes = -len(payload) % 4
    packet = _up_to_udp(envelope) / BTH(
        opcode=int(opcode),
        migreq=int(not is_cnp),
        becn=int(is_cnp),
        padcount=pad_bytes,
        dqpn=_unsigned("dest_qp", envelope.dest_qp, 24),
        ackreq=int(ack_request),
        psn=_unsigned("psn", psn, 24),
    )
    for _, layer in layers:
        packet /= layer
    if payload:
        packet /= Raw(payload + bytes(pad_bytes))
    return bytes(packet)


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


def _up_to_udp(envelope: Envelope) -> Packet:
    versions = {ip_address(ip).version for ip in (envelope.source_ip, envelope.destination_ip)}
    if len(versions) != 1:
        raise ValueError(f"{envelope.source_ip} and {envelope.destination_ip} differ in version")
    traffic_class = _unsigned("dscp", envelope.dscp, 6) << 2 | _unsigned("ecn", envelope.ecn, 2)
    ttl = _unsigned("ttl", envelope.ttl, 8)
    if versions == {4}:
        ip = IP(
            src=envelope.source_ip,
            dst=envelope.destination_ip,
            tos=traffic_class,
            flags="DF",
            id=0,
            ttl=ttl,
        )
    else:
        ip = IPv6(
            src=envelope.source_ip,
            dst=envelope.destination_ip,
            tc=traffic_class,
            fl=_unsigned("flow_label", envelope.flow_label, 20),
            hlim=ttl,
        )
    sport = _unsigned("sport", envelope.sport, 16)
    return (
        Ether(src=envelope.source_mac, dst=envelope.next_hop_mac)
        / ip
        / UDP(sport=sport, dport=ROCE_PORT, chksum=0)
    )


def _layer(header: Header) -> tuple[Extension, Packet]:
    match header:
        case RemoteMemory():
            return Extension.RETH, RETH(
                va=_unsigned("address", header.address, 64),
                rkey=_unsigned("rkey", header.rkey, 32),
                dmalen=_unsigned("length_bytes", header.length_bytes, 32),
            )
        case Immediate():
            return Extension.IMM, ImmDt(data=_unsigned("immediate data", header.data, 32))
        case Invalidate():
            return Extension.IETH, IETH(rkey=_unsigned("rkey", header.rkey, 32))
        case AtomicOperation():
            return Extension.ATOMIC, AtomicETH(
                va=_unsigned("address", header.address, 64),
                rkey=_unsigned("rkey", header.rkey, 32),
                swap=_unsigned("swap", header.swap, 64),
                compare=_unsigned("compare", header.compare, 64),
            )
        case Acknowledgement():
            return Extension.AETH, AETH(
                syndrome=header.syndrome.byte, msn=_unsigned("msn", header.msn, 24)
            )
        case AtomicOriginal():
            return Extension.ATOMIC_ACK, AtomicAckETH(
                value=_unsigned("original value", header.value, 64)
            )


def _unsigned(name: str, value: int, bits: int) -> int:
    if not 0 <= value < 1 << bits:
        raise ValueError(f"{name} is {value}, it has {bits} bits")
    return value
