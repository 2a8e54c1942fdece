"""Frames of a queue pair in a microsecond each: built once per kind, stamped per packet.

From one header frame with a queue pair's addresses (`rocelab.traffic.roce` builds it) and the kind
of packet it makes complete RoCEv2 frames with PSN, extended headers and ICRC, byte for byte as
`rocelab.traffic.roce` builds them. Standard library only.
"""

from __future__ import annotations

from struct import Struct, pack_into
from zlib import crc32

from rocelab.base.family import Family
from rocelab.wire.headers import (
    ICRC_BYTES,
    IP_OFFSET,
    OFFSETS,
    PSN_MASK,
    extension_bytes,
    family_of,
)
from rocelab.wire.icrc import crc_before_psn

ACK_REQUEST = 1 << 31
"""The bit above the PSN that asks the responder for an acknowledgement."""

_PSN = Struct("!I")
_ICRC = Struct("<I")


class Template:
    """One kind of packet of one queue pair. `data` is the frame as last stamped."""

    __slots__ = ("_covered", "_crc", "_icrc_offset", "_payload_offset", "_psn_offset", "data")

    def __init__(
        self,
        header: bytes,
        opcode: int,
        payload_bytes: int,
        *,
        tos: int,
        becn: bool = False,
    ) -> None:
        """`header` is Ethernet, IP, UDP and BTH with the queue pair's addresses and destination QP;
        `tos` is the traffic class of IPv6; `payload_bytes` are zeros, padded to four. Raises
        ValueError for any other `header`.
        """
        family = family_of(header + bytes(ICRC_BYTES))
        offsets = OFFSETS[family]
        pad = -payload_bytes % 4
        length = offsets.payload + extension_bytes(opcode) + payload_bytes + pad + ICRC_BYTES
        data = bytearray(header[: offsets.payload].ljust(length, b"\0"))
        if family is Family.IPV4:
            data[IP_OFFSET + 1] = tos
            pack_into("!H", data, IP_OFFSET + 2, length - IP_OFFSET)
            pack_into("!H", data, IP_OFFSET + 10, 0)
            pack_into("!H", data, IP_OFFSET + 10, ip_checksum(data[IP_OFFSET : offsets.udp]))
        else:
            data[IP_OFFSET] = data[IP_OFFSET] & 0xF0 | tos >> 4
            data[IP_OFFSET + 1] = data[IP_OFFSET + 1] & 0x0F | tos << 4 & 0xF0
            pack_into("!H", data, IP_OFFSET + 4, length - offsets.udp)
        pack_into("!H", data, offsets.udp + 4, length - offsets.udp)
        bth = offsets.bth
        data[bth] = opcode
        # A CNP has no migration state (annex A17.9.3); other packets keep the header's.
        data[bth + 1] = 0 if becn else data[bth + 1] & 0b11001111 | pad << 4
        data[bth + 4] = becn << 6
        self.data = data
        self._psn_offset, self._payload_offset = offsets.psn, offsets.payload
        self._icrc_offset = length - ICRC_BYTES
        self._covered = memoryview(data)[offsets.psn : self._icrc_offset]
        self._crc = crc_before_psn(data)

    def readdress(self, macs: bytes) -> None:
        """Replace the Ethernet addresses, destination and source, which the ICRC does not cover."""
        self.data[: len(macs)] = macs

    def stamp(self, psn_word: int, extension: bytes = b"") -> bytearray:
        """The frame with this PSN (and ACK_REQUEST, if set) and these extended headers.

        Valid until the next call.
        """
        data = self.data
        _PSN.pack_into(data, self._psn_offset, psn_word)
        if extension:
            start = self._payload_offset
            data[start : start + len(extension)] = extension
        _ICRC.pack_into(data, self._icrc_offset, crc32(self._covered, self._crc))
        return data


def ip_checksum(header: bytes | bytearray) -> int:
    """The Internet checksum (RFC 1071) of an IPv4 header whose checksum field is zero."""
    total = sum(int.from_bytes(header[i : i + 2], "big") for i in range(0, len(header), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def unwrapped(psn: int, near: int) -> int:
    """The number nearest to `near` whose low 24 bits are `psn`.

    PSNs count modulo 2^24 on the wire and without limit here; with less than 2^23 packets in flight
    the nearest is the right one (InfiniBand Architecture Specification 9.7.1).
    """
    return near + ((psn - near + 0x800000) & PSN_MASK) - 0x800000
