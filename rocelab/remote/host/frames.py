"""The log of a run: its stdout and stderr, in order, and its exit code.

A log only grows, by whole frames (kind, length, bytes), so a reader that lost its connection
resumes at the number of bytes it has parsed. Standard library only: both machines use it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

HEADER = struct.Struct(">BI")
MAX_PAYLOAD = 1 << 16


class FrameKind(IntEnum):
    """What a frame holds."""

    OUT = 1
    ERR = 2
    LOST = 3
    """Bytes of output lost to a full disk, in decimal digits."""
    EXIT = 4
    """The exit code in decimal digits: the last frame of every log."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of a log."""

    kind: FrameKind
    payload: bytes

    def encoded(self) -> bytes:
        return HEADER.pack(self.kind, len(self.payload)) + self.payload


class FrameReader:
    """Parses a log's bytes, in pieces of any size, to frames."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        """Parsed bytes of the log: where a later reader resumes."""
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames completed by this data. Raises ValueError if it is not a log."""
        self._rest += data
        while len(self._rest) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._rest)
            if length > MAX_PAYLOAD:
                raise ValueError(f"no frame has {length} bytes")
            end = HEADER.size + length
            if len(self._rest) < end:
                return
            payload, self._rest = self._rest[HEADER.size : end], self._rest[end:]
            self.offset += end
            yield Frame(FrameKind(kind), payload)
