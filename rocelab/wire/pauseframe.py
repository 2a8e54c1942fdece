"""Pause frames of priority-based flow control (IEEE 802.1Qbb; IEEE 802.3 annex 31D).

A frame asks its receiver, for each class that it names, not to send for a time in quanta of 512 bit
times; 0 ends a pause. Pure; standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct

ETHERTYPE = 0x8808
OPCODE = 0x0101
DESTINATION = bytes.fromhex("0180c2000001")
"""MAC control's own address, which no bridge forwards."""

MAX_QUANTA = 0xFFFF
CLASSES = 8
LEAST_FRAME_BYTES = 60

_MAC_CONTROL = Struct("!HHH8H")  # ethertype, opcode, classes, quanta of each class
_AT = 12


def encode(source_mac: bytes, quanta: Mapping[int, int]) -> bytes:
    """A frame from `source_mac` that pauses classes for these quanta; padding is zero."""
    classes = sum(1 << number for number in quanta)
    times = (quanta.get(number, 0) for number in range(CLASSES))
    frame = DESTINATION + source_mac + _MAC_CONTROL.pack(ETHERTYPE, OPCODE, classes, *times)
    return frame.ljust(LEAST_FRAME_BYTES, b"\0")


def decode(frame: bytes) -> dict[int, int]:
    """The quanta of each class that a frame names; empty if it is no such pause frame."""
    if len(frame) < _AT + _MAC_CONTROL.size:
        return {}
    ethertype, opcode, classes, *times = _MAC_CONTROL.unpack_from(frame, _AT)
    if (ethertype, opcode) != (ETHERTYPE, OPCODE):
        return {}
    return {number: times[number] for number in range(CLASSES) if classes >> number & 1}
