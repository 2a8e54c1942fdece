"""The log of a run: what it wrote to stdout and stderr, in order, and how it ended.

A log only grows, by whole frames (kind, length, bytes), so a reader that lost its connection goes
on at the number of bytes it has understood. Standard library only: both machines use it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

HEADER = struct.Struct(">BI")
MAX_PAYLOAD = 1 << 16


class Kind(IntEnum):
    """What a frame holds."""

    OUT = 1
    ERR = 2
    LOST = 3
    """How many bytes of output the disk had no room for, in decimal digits."""
    EXIT = 4
    """The exit code in decimal digits: the last frame of every log."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One piece of a log."""

    kind: Kind
    payload: bytes

    def encoded(self) -> bytes:
        return HEADER.pack(self.kind, len(self.payload)) + self.payload


class FrameReader:
    """Takes a log's bytes in pieces of any size and gives its frames."""

    def __init__(self, offset: int = 0) -> None:
        self.offset = offset
        """Bytes of the log that were understood: where a later reader goes on."""
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete with this. Raises ValueError for what is no log."""
        self._rest += data
        while len(self._rest) >= HEADER.size:
            kind, length = HEADER.unpack_from(self._rest)
            if length > MAX_PAYLOAD:
                raise ValueError(f"a frame of {length} bytes is none")
            end = HEADER.size + length
            if len(self._rest) < end:
                return
            payload, self._rest = self._rest[HEADER.size : end], self._rest[end:]
            self.offset += end
            yield Frame(Kind(kind), payload)
