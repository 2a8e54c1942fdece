"""The invariant CRC (ICRC) of RoCEv2, which ends every packet; NICs drop packets with a wrong one.

Computes or checks the four ICRC bytes of an Ethernet frame with IPv4 or IPv6, UDP and a BTH.
Standard library only, so that the process in each server starts fast. A sender of many similar
packets keeps `crc_before_psn` and runs `zlib.crc32` only over the rest.
"""

from __future__ import annotations

from struct import Struct
from zlib import crc32

from rocelab.base.family import Family
from rocelab.wire.headers import ICRC_BYTES, IP_OFFSET, OFFSETS, family_of

_ABSENT_LRH = b"\xff" * 8
_ICRC = Struct("<I")


def crc_before_psn(frame: bytes | bytearray) -> int:
    """The `zlib.crc32` state after all bytes before the BTH's PSN word, masked as specified.

    The ICRC is then crc32 over the frame from its PSN word to where the ICRC starts, continued from
    this state, in little-endian order. InfiniBand Architecture Specification, annex A17 (RoCEv2),
    section A17.3.3: ones in place of the LRH (8 bytes), IPv4's TOS, TTL and header checksum, IPv6's
    traffic class, flow label and hop limit, the UDP checksum, and the BTH's FECN, BECN and reserved
    bits. Raises ValueError as `family_of` does.
    """
    return _crc_before_psn(frame, family_of(frame))


def icrc(frame: bytes | bytearray) -> bytes:
    """The four ICRC bytes of a frame, in wire order.

    The frame's last four bytes are the place of the ICRC and are not read. Raises ValueError as
    `family_of` does.
    """
    return _icrc(frame, family_of(frame), len(frame))


def icrc_is_right(frame: bytes | bytearray) -> bool:
    """Whether a NIC would take the frame: RoCEv2 in the sense of `family_of`, with the right ICRC.

    Bytes after the IP packet (Ethernet's padding to 60) do not count.
    """
    try:
        family = family_of(frame)
    except ValueError:
        return False
    end = packet_end(frame, family)
    if not OFFSETS[family].payload + ICRC_BYTES <= end <= len(frame):
        return False
    return _icrc(frame, family, end) == frame[end - ICRC_BYTES : end]


def packet_end(frame: bytes | bytearray | memoryview, family: Family) -> int:
    """Where the IP packet of a frame of that family ends, as its header says."""
    start, at = (IP_OFFSET, 2) if family is Family.IPV4 else (OFFSETS[family].udp, 4)
    return start + int.from_bytes(frame[IP_OFFSET + at : IP_OFFSET + at + 2], "big")


def _crc_before_psn(frame: bytes | bytearray, family: Family) -> int:
    ip, offsets = len(_ABSENT_LRH), OFFSETS[family]
    masked = bytearray(_ABSENT_LRH) + frame[IP_OFFSET : offsets.psn]
    if family is Family.IPV4:
        masked[ip + 1] = masked[ip + 8] = 0xFF
        masked[ip + 10 : ip + 12] = b"\xff\xff"
    else:
        masked[ip] |= 0x0F
        masked[ip + 1 : ip + 4] = b"\xff\xff\xff"
        masked[ip + 7] = 0xFF
    bth = ip + offsets.bth - IP_OFFSET
    masked[bth - 2 : bth] = b"\xff\xff"
    masked[bth + 4] = 0xFF
    return crc32(masked)


def _icrc(frame: bytes | bytearray, family: Family, end: int) -> bytes:
    covered = memoryview(frame)[OFFSETS[family].psn : end - ICRC_BYTES]
    return _ICRC.pack(crc32(covered, _crc_before_psn(frame, family)))
