"""Parses a probe frame in the plain way; the agent parses it in place."""

from __future__ import annotations

import struct
from typing import NamedTuple

from rocelab.wire.headers import (
    BTH_OFFSET,
    ICRC_BYTES,
    IP_OFFSET,
    PAYLOAD_OFFSET,
    PSN_OFFSET,
    ROCE_PORT,
    UDP_OFFSET,
    Opcode,
    bth_offset,
)
from rocelab.wire.icrc import icrc
from rocelab.wire.probe import HEADER_END, MAGIC, PROBE_HEADER


def _is_ipv4(frame: bytes) -> bool:
    try:
        return bth_offset(frame) == BTH_OFFSET
    except ValueError:
        return False


class Probe(NamedTuple):
    """The content of an intact probe. Times are CLOCK_REALTIME nanoseconds."""

    flow: int
    sequence: int
    send_ns: int
    psn: int
    dest_qp: int
    sport: int
    ttl: int


def parse_probe(frame: bytes) -> Probe | None:
    """The probe in a frame, or None if it is no probe or its ICRC is wrong.

    A NIC drops a packet of wrong ICRC too, so a damaged probe counts as a lost one.
    """
    if not _is_ipv4(frame) or len(frame) < HEADER_END + ICRC_BYTES:
        return None
    total_bytes = int.from_bytes(frame[16:18], "big")
    frame = frame[: IP_OFFSET + total_bytes]
    if len(frame) < max(HEADER_END + ICRC_BYTES, IP_OFFSET + total_bytes):
        return None
    sport, dport = struct.unpack_from("!HH", frame, UDP_OFFSET)
    magic, flow, sequence, send_ns = PROBE_HEADER.unpack_from(frame, PAYLOAD_OFFSET)
    if dport != ROCE_PORT or frame[BTH_OFFSET] != Opcode.RC_SEND_ONLY or magic != MAGIC:
        return None
    if icrc(frame) != frame[-ICRC_BYTES:]:
        return None
    return Probe(
        flow=flow,
        sequence=sequence,
        send_ns=send_ns,
        psn=int.from_bytes(frame[PSN_OFFSET + 1 : PAYLOAD_OFFSET], "big"),
        dest_qp=int.from_bytes(frame[BTH_OFFSET + 5 : PSN_OFFSET], "big"),
        sport=sport,
        ttl=frame[IP_OFFSET + 8],
    )
