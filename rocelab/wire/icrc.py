"""The invariant CRC (ICRC) of RoCEv2, which ends every packet; NICs drop packets with a wrong one.

Computes or checks the four ICRC bytes of an Ethernet frame with IPv4 or IPv6, UDP and a BTH.
Standard library only, so that the process in each server starts fast. A sender of many similar
packets keeps `crc_before_psn` and runs `zlib.crc32` only over the rest.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from rocelab.wire.headers import (
    BTH_BYTES,
    BTH_OFFSET,
    ICRC_BYTES,
    IP_OFFSET,
    UDP_BYTES,
    bth_offset,
)

_PSN_IN_BTH = 8
_ABSENT_LRH = b"\xff" * 8
_ICRC = Struct("<I")


def crc_before_psn(frame: bytes | bytearray) -> int:
    """The `zlib.crc32` state after all bytes before the BTH's PSN word, masked as specified.

    The ICRC is then crc32 over the frame from its PSN word to where the ICRC starts, continued from
    this state, in little-endian order. InfiniBand Architecture Specification, annex A17 (RoCEv2),
    section A17.3.3: ones in place of the LRH (8 bytes), IPv4's TOS, TTL and header checksum, IPv6's
    traffic class, flow label and hop limit, the UDP checksum, and the BTH's FECN, BECN and reserved
    bits. Raises ValueError as `bth_offset` does.
    """
    return _crc_before_psn(frame, bth_offset(frame))


def icrc(frame: bytes | bytearray) -> bytes:
    """The four ICRC bytes of a frame, in wire order.

    The frame's last four bytes are the place of the ICRC and are not read. Raises ValueError as
    `bth_offset` does.
    """
    return _icrc(frame, bth_offset(frame), len(frame))


def icrc_is_right(frame: bytes | bytearray) -> bool:
    """Whether a NIC would take the frame: RoCEv2 in the sense of `bth_offset`, with the right ICRC.

    Bytes after the IP packet (Ethernet's padding to 60) do not count.
    """
    try:
        bth = bth_offset(frame)
    except ValueError:
        return False
    if bth == BTH_OFFSET:
        end = IP_OFFSET + int.from_bytes(frame[IP_OFFSET + 2 : IP_OFFSET + 4], "big")
    else:
        end = bth - UDP_BYTES + int.from_bytes(frame[IP_OFFSET + 4 : IP_OFFSET + 6], "big")
    if not bth + BTH_BYTES + ICRC_BYTES <= end <= len(frame):
        return False
    return _icrc(frame, bth, end) == frame[end - ICRC_BYTES : end]


def _crc_before_psn(frame: bytes | bytearray, bth: int) -> int:
    ip = len(_ABSENT_LRH)
    masked = bytearray(_ABSENT_LRH) + frame[IP_OFFSET : bth + _PSN_IN_BTH]
    if bth == BTH_OFFSET:
        masked[ip + 1] = masked[ip + 8] = 0xFF
        masked[ip + 10 : ip + 12] = b"\xff\xff"
    else:
        masked[ip] |= 0x0F
        masked[ip + 1 : ip + 4] = b"\xff\xff\xff"
        masked[ip + 7] = 0xFF
    bth_in_masked = ip + bth - IP_OFFSET
    masked[bth_in_masked - 2 : bth_in_masked] = b"\xff\xff"
    masked[bth_in_masked + 4] = 0xFF
    return crc32(masked)


def _icrc(frame: bytes | bytearray, bth: int, end: int) -> bytes:
    covered = memoryview(frame)[bth + _PSN_IN_BTH : end - ICRC_BYTES]
    return _ICRC.pack(crc32(covered, _crc_before_psn(frame, bth)))
