"""Probe packets as bytes: RoCEv2 frames with a flow id, a sequence number and a send time.

Takes a complete frame of a flow (`rocelab.traffic.roce` builds it) and stamps it with another
sequence number, time and ICRC, in a few microseconds per packet. Standard library only, so that the
process in each server starts fast.

    Ethernet | IPv4 | UDP to 4791 | BTH | magic 4, flow 4, sequence 8, time 8, zeros ... | ICRC 4
"""

from __future__ import annotations

import struct
from zlib import crc32

from rocelab.wire.headers import (
    BTH_OFFSET,
    ICRC_BYTES,
    IP_OFFSET,
    PAYLOAD_OFFSET,
    PSN_MASK,
    PSN_OFFSET,
    bth_offset,
)
from rocelab.wire.icrc import crc_before_psn

MAGIC = 0x526F4345
NO_FLOW = 2**32 - 1
"""The flow id of single probes, so that they do not count as packets of a running flow."""

PROBE_HEADER = struct.Struct("!IIQQ")
"""Magic, flow id, sequence number, send time: the start of the payload."""

HEADER_END = PAYLOAD_OFFSET + PROBE_HEADER.size
MIN_PAYLOAD_BYTES = PROBE_HEADER.size
IP_OVERHEAD_BYTES = PAYLOAD_OFFSET - IP_OFFSET + ICRC_BYTES
"""The overhead of IPv4, UDP, BTH and ICRC within the IP MTU."""

_PSN_WORD = struct.Struct("!I")
_SEQUENCE_AND_TIME = struct.Struct("!QQ")
_SEQUENCE_OFFSET = PAYLOAD_OFFSET + 8
_ICRC = struct.Struct("<I")


def _is_ipv4(frame: bytes | bytearray) -> bool:
    try:
        return bth_offset(frame) == BTH_OFFSET
    except ValueError:
        return False


class ProbeStamper:
    """One flow's frame, stamped for every packet.

    The CRC over the constant bytes before the PSN is computed once. The result equals, byte for
    byte, the frame that `rocelab.traffic.roce` builds for the same sequence number and time.
    """

    __slots__ = ("_covered", "_crc", "_frame", "_icrc_offset", "_psn_flags")

    def __init__(self, template: bytes) -> None:
        """Raises ValueError if `template` is not a RoCEv2 frame over IPv4."""
        if not _is_ipv4(template) or len(template) < HEADER_END + ICRC_BYTES:
            raise ValueError("the template is not a probe frame")
        self._frame = bytearray(template)
        self._icrc_offset = len(template) - ICRC_BYTES
        self._covered = memoryview(self._frame)[PSN_OFFSET : self._icrc_offset]
        self._crc = crc_before_psn(template)
        self._psn_flags = template[PSN_OFFSET] << 24

    def stamp(self, sequence: int, send_ns: int) -> bytearray:
        """The frame numbered `sequence` (its PSN: modulo 2^24). Valid until the next call."""
        frame = self._frame
        _PSN_WORD.pack_into(frame, PSN_OFFSET, self._psn_flags | sequence & PSN_MASK)
        _SEQUENCE_AND_TIME.pack_into(frame, _SEQUENCE_OFFSET, sequence, send_ns)
        _ICRC.pack_into(frame, self._icrc_offset, crc32(self._covered, self._crc))
        return frame
