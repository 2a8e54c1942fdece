"""Reads captured packets from tcpdump's classic pcap and writes them as pcapng, with the
interface's name and nanoseconds.

Formats: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng. Numbers are in the machine's own byte
order, which the file states.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

_PCAP_HEADER = struct.Struct("=IHHiIII")
_PCAP_RECORD = struct.Struct("=IIII")
_PCAP_NANOSECONDS = 0xA1B23C4D

_SECTION_HEADER, _INTERFACE, _PACKET = 0x0A0D0D0A, 1, 6
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_UNKNOWN_LENGTH = 0xFFFF_FFFF_FFFF_FFFF
_SHB_USERAPPL, _IF_NAME, _IF_TSRESOL = 4, 2, 9
_NANOSECONDS = b"\x09"


@dataclass(frozen=True, slots=True)
class Packet:
    """A captured packet: its time, its original length, and the bytes that were kept."""

    time_ns: int
    length: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture while it is read: its link type, snap length and packets."""

    link_type: int
    snap_length: int
    packets: Iterator[Packet]


def read_pcap(stream: IO[bytes]) -> Capture:
    """A capture with nanoseconds, of this machine's byte order.

    A packet cut off by the end of the stream is left out. Raises ValueError for anything else.
    """
    header = stream.read(_PCAP_HEADER.size)
    if len(header) < _PCAP_HEADER.size:
        raise ValueError("a capture that ends before its header")
    magic, _, _, _, _, snap_length, link_type = _PCAP_HEADER.unpack(header)
    if magic != _PCAP_NANOSECONDS:
        raise ValueError(f"not a capture with nanoseconds: magic {magic:#x}")
    return Capture(link_type, snap_length, _packets(stream))


def _packets(stream: IO[bytes]) -> Iterator[Packet]:
    while len(header := stream.read(_PCAP_RECORD.size)) == _PCAP_RECORD.size:
        seconds, nanoseconds, kept, length = _PCAP_RECORD.unpack(header)
        data = stream.read(kept)
        if len(data) < kept:
            return
        yield Packet(seconds * 10**9 + nanoseconds, length, data)


def pcapng_header(application: str, interface: str, capture: Capture) -> bytes:
    """The beginning of a file: its section header and the one interface whose packets follow."""
    section = struct.pack("=IHHQ", _BYTE_ORDER_MAGIC, 1, 0, _UNKNOWN_LENGTH)
    section += _option(_SHB_USERAPPL, application.encode()) + _option(0, b"")
    described = struct.pack("=HHI", capture.link_type, 0, capture.snap_length)
    described += _option(_IF_NAME, interface.encode())
    described += _option(_IF_TSRESOL, _NANOSECONDS) + _option(0, b"")
    return _block(_SECTION_HEADER, section) + _block(_INTERFACE, described)


def pcapng_packet(packet: Packet) -> bytes:
    """An enhanced packet block."""
    fields = struct.pack(
        "=IIIII",
        0,
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
