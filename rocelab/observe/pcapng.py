"""Reads captured packets from tcpdump's classic pcap and writes them as pcapng, with the
interfaces' names and nanoseconds.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Numbers are in the machine's own byte
order, which the file states.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_PCAP_HEADER = struct.Struct("=IHHiIII")
PCAP_HEADER_BYTES = _PCAP_HEADER.size
PIECE_BYTES = 1 << 16
"""How much of a capture is read at once."""
_PCAP_RECORD = struct.Struct("=IIII")
_PCAP_NANOSECONDS = 0xA1B23C4D

_SECTION_HEADER, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_UNKNOWN_LENGTH = 0xFFFF_FFFF_FFFF_FFFF
_SHB_USERAPPL, _IF_NAME, _IF_TSRESOL = 4, 2, 9
_NANOSECONDS = b"\x09"


@dataclass(frozen=True, slots=True)
class CapturedPacket:
    """A captured packet: its time, its original length, and the bytes that were kept."""

    time_ns: int
    length: int
    data: bytes


class PcapReader:
    """Parses a capture with nanoseconds, of this machine's byte order."""

    def __init__(self, header: bytes) -> None:
        """`header` has the first PCAP_HEADER_BYTES. Raises ValueError for anything else."""
        if len(header) < PCAP_HEADER_BYTES:
            raise ValueError("a capture that ends before its header")
        magic, _, _, _, _, self.snap_length, self.link_type = _PCAP_HEADER.unpack(header)
        if magic != _PCAP_NANOSECONDS:
            raise ValueError(f"not a capture with nanoseconds: magic {magic:#x}")
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[CapturedPacket]:
        """The packets completed by this data, which comes in pieces of any size."""
        data = self._rest + data
        at = 0
        while len(data) - at >= _PCAP_RECORD.size:
            seconds, nanoseconds, kept, length = _PCAP_RECORD.unpack_from(data, at)
            begin = at + _PCAP_RECORD.size
            if len(data) - begin < kept:
                break
            at = begin + kept
            yield CapturedPacket(seconds * 10**9 + nanoseconds, length, data[begin:at])
        self._rest = data[at:]


def pcapng_header(application: str, interfaces: Mapping[str, PcapReader]) -> bytes:
    """The beginning of a file: its section header and the interfaces whose packets follow, by their
    names, numbered from 0 in this order."""
    section = struct.pack("=IHHQ", _BYTE_ORDER_MAGIC, 1, 0, _UNKNOWN_LENGTH)
    section += _option(_SHB_USERAPPL, application.encode()) + _option(0, b"")
    blocks = [_block(_SECTION_HEADER, section)]
    for name, capture in interfaces.items():
        described = struct.pack("=HHI", capture.link_type, 0, capture.snap_length)
        described += _option(_IF_NAME, name.encode())
        described += _option(_IF_TSRESOL, _NANOSECONDS) + _option(0, b"")
        blocks.append(_block(_INTERFACE, described))
    return b"".join(blocks)


def pcapng_packet(packet: CapturedPacket, interface: int) -> bytes:
    """An enhanced packet block of the interface with this number."""
    fields = struct.pack(
        "=IIIII",
        interface,
        packet.time_ns >> 32,
        packet.time_ns & 0xFFFF_FFFF,
        len(packet.data),
        packet.length,
    )
    return _block(_PACKET, fields + _padded(packet.data))


def _block(kind: int, body: bytes) -> bytes:
    length = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + length + body + length


def _option(code: int, value: bytes) -> bytes:
    return struct.pack("=HH", code, len(value)) + _padded(value)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
