"""Parses a probe frame in the plain way; the agent parses it in place."""

from __future__ import annotations

import struct
from typing import NamedTuple

from rocelab.wire.headers import (
    ICRC_BYTES,
    OFFSETS,
    ROCE_PORT,
    Opcode,
    family_of,
    hop_limit,
)
from rocelab.wire.icrc import icrc, packet_end
from rocelab.wire.probe import MAGIC, PROBE_HEADER


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
    try:
        family = family_of(frame)
    except ValueError:
        return None
    offsets, end = OFFSETS[family], packet_end(frame, family)
    least = offsets.payload + PROBE_HEADER.size + ICRC_BYTES
    if not least <= end <= len(frame):
        return None
    frame = frame[:end]
    sport, dport = struct.unpack_from("!HH", frame, offsets.udp)
    magic, flow, sequence, send_ns = PROBE_HEADER.unpack_from(frame, offsets.payload)
    if dport != ROCE_PORT or frame[offsets.bth] != Opcode.RC_SEND_ONLY or magic != MAGIC:
        return None
    if icrc(frame) != frame[-ICRC_BYTES:]:
        return None
    return Probe(
        flow=flow,
        sequence=sequence,
        send_ns=send_ns,
        psn=int.from_bytes(frame[offsets.psn + 1 : offsets.payload], "big"),
        dest_qp=int.from_bytes(frame[offsets.bth + 5 : offsets.psn], "big"),
        sport=sport,
        ttl=hop_limit(frame, family),
    )
