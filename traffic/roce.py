"""RoCEv2 packets built with Scapy: what every probe on the wire is made from.

In: the addresses of a pair of NICs and the numbers of one packet. Out: the complete Ethernet frame,
its ICRC correct. Senders build one frame per flow here and stamp it with `traffic.probe`.
"""

from __future__ import annotations

from scapy.contrib.roce import BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from traffic.flow import Endpoints
from traffic.probe import (
    MAGIC,
    MIN_PAYLOAD_BYTES,
    NO_FLOW,
    PROBE_HEADER,
    PSN_MASK,
    RC_SEND_ONLY,
    ROCE_PORT,
)

DSCP_ROCE = 26
"""The DSCP that NICs put on RoCE traffic by default, for lossless queues."""

ECT_0 = 0b10
"""ECN-capable transport (RFC 3168 section 5), so that switches mark instead of dropping."""

DEFAULT_TTL = 64


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
    """One probe as an Ethernet frame: RC SEND_ONLY, DSCP 26, ECT(0), ICRC and checksums right.

    `payload_bytes` counts from the probe's magic, without padding to four bytes and ICRC; `send_ns`
    is CLOCK_REALTIME. With a low `ttl` the frame ends at the ttl-th switch, which answers ICMP time
    exceeded. The UDP checksum is 0, as NICs send it. Raises ValueError where the payload is too
    small for the probe's own fields.
    """
    if payload_bytes < MIN_PAYLOAD_BYTES:
        raise ValueError(f"a probe needs {MIN_PAYLOAD_BYTES} bytes of payload, got {payload_bytes}")
    pad_bytes = -payload_bytes % 4
    payload = PROBE_HEADER.pack(MAGIC, flow, sequence, send_ns).ljust(
        payload_bytes + pad_bytes, b"\0"
    )
    packet = (
        Ether(src=endpoints.source_mac, dst=endpoints.next_hop_mac)
        / IP(
            src=endpoints.source_ip,
            dst=endpoints.destination_ip,
            tos=DSCP_ROCE << 2 | ECT_0,
            flags="DF",
            id=0,
            ttl=ttl,
        )
        / UDP(sport=sport, dport=ROCE_PORT, chksum=0)
        / BTH(
            opcode=RC_SEND_ONLY,
            migreq=1,
            padcount=pad_bytes,
            dqpn=dest_qp,
            psn=sequence & PSN_MASK,
        )
        / Raw(payload)
    )
    return bytes(packet)
