"""Probe packets as bytes: RoCEv2 frames with a flow id, a sequence number and a send time.

Takes a complete frame of a flow (`rocelab.traffic.roce` builds it) and stamps it with another
sequence number, time and ICRC, in a few microseconds per packet. Standard library only, so that the
process in each server starts fast.

    Ethernet | IP | UDP to 4791 | BTH | magic 4, flow 4, sequence 8, time 8, zeros ... | ICRC 4
"""

from __future__ import annotations

import struct
from zlib import crc32

from rocelab.wire.headers import ICRC_BYTES, OFFSETS, PSN_MASK, family_of
from rocelab.wire.icrc import crc_before_psn

MAGIC = 0x526F4345
NO_FLOW = 2**32 - 1
"""The flow id of single probes, so that they do not count as packets of a running flow."""

PROBE_HEADER = struct.Struct("!IIQQ")
"""Magic, flow id, sequence number, send time: the start of the payload."""

MIN_PAYLOAD_BYTES = PROBE_HEADER.size

_PSN_WORD = struct.Struct("!I")
_SEQUENCE_AND_TIME = struct.Struct("!QQ")
_SEQUENCE_IN_PAYLOAD = 8
_ICRC = struct.Struct("<I")


class ProbeStamper:
    """One flow's frame, stamped for every packet.

    The CRC over the constant bytes before the PSN is computed once. The result equals, byte for
    byte, the frame that `rocelab.traffic.roce` builds for the same sequence number and time.
    """

    __slots__ = (
        "_covered",
        "_crc",
        "_frame",
        "_icrc_offset",
        "_psn_flags",
        "_psn_offset",
        "_sequence_offset",
    )

    def __init__(self, template: bytes) -> None:
        """Raises ValueError if `template` is not a RoCEv2 frame with room for a probe."""
        offsets = OFFSETS[family_of(template)]
        if len(template) < offsets.payload + PROBE_HEADER.size + ICRC_BYTES:
            raise ValueError("the template is not a probe frame")
        self._frame = bytearray(template)
        self._psn_offset = offsets.psn
        self._sequence_offset = offsets.payload + _SEQUENCE_IN_PAYLOAD
        self._icrc_offset = len(template) - ICRC_BYTES
        self._covered = memoryview(self._frame)[offsets.psn : self._icrc_offset]
        self._crc = crc_before_psn(template)
        self._psn_flags = template[offsets.psn] << 24

    def stamp(self, sequence: int, send_ns: int) -> bytearray:
        """The frame numbered `sequence` (its PSN: modulo 2^24). Valid until the next call."""
        frame = self._frame
        _PSN_WORD.pack_into(frame, self._psn_offset, self._psn_flags | sequence & PSN_MASK)
        _SEQUENCE_AND_TIME.pack_into(frame, self._sequence_offset, sequence, send_ns)
        _ICRC.pack_into(frame, self._icrc_offset, crc32(self._covered, self._crc))
        return frame
