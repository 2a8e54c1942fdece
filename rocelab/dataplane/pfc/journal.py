"""What the process of lossless classes did, as a file of records: pauses sent, obeyed and ended.

The process appends; any other reads. Times are CLOCK_MONOTONIC. Standard library only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from enum import IntEnum
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_RECORD = Struct("=QqHBB")
MOST_BYTES = 64 << 20
"""Some three million records; what comes after is not recorded, and `Journal.lost` counts it."""


class JournalAction(IntEnum):
    """What happened at a port, to one class."""

    PAUSE_SENT = 1
    REFRESHED = 2
    RESUME_SENT = 3
    STOPPED = 4
    STARTED = 5
    EXPIRED = 6
    """It went on since nobody refreshed the pause."""
    CUT = 7
    """It went on since its link lost the carrier."""
    FIRED = 8
    """The watchdog took it off its pause."""
    RESTORED = 9
    LOST = 10
    """Records were: the file is full."""
    TAKEN_OVER = 11
    """The process began, with all gates open: pauses of one before it have ended. Of no port."""

    @classmethod
    def _missing_(cls, value: object) -> JournalAction:
        """Of a record that is damaged."""
        return cls.LOST


class JournalEntry(NamedTuple):
    """`value`: ns after it was due, as modelled, of what STOPPED and STARTED; bytes in a NIC's
    receive buffer, of its PAUSE_SENT and REFRESHED; else 0."""

    t_ns: int
    value: int
    slot: int
    traffic_class: int
    what: JournalAction


class PauseJournal:
    """Appends to the file; `flush` writes what was noted."""

    def __init__(self, file: Path) -> None:
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._waiting = bytearray()
        written = os.fstat(self._descriptor).st_size
        # A process that was killed may have had room for a part of a record.
        os.ftruncate(self._descriptor, written - written % _RECORD.size)
        self._left = MOST_BYTES - written

    @property
    def waiting(self) -> int:
        """How many records there was no room for yet."""
        return -(-len(self._waiting) // _RECORD.size)

    def note(
        self, t_ns: int, what: JournalAction, slot: int, traffic_class: int, value: int = 0
    ) -> None:
        """Note what happened."""
        self._left -= _RECORD.size
        if self._left < 0:
            if self._left >= -_RECORD.size:
                self._waiting += _RECORD.pack(t_ns, 0, slot, traffic_class, JournalAction.LOST)
            return
        self._waiting += _RECORD.pack(t_ns, value, slot, traffic_class, what)

    def flush(self) -> None:
        """Write what was noted since the last call; what does not fit the disk waits."""
        if self._waiting:
            with suppress(OSError):
                del self._waiting[: os.write(self._descriptor, self._waiting)]


def read(file: Path, since: int = 0) -> Iterator[JournalEntry]:
    """The entries of the file, from its `since`-th on; none if there is no file."""
    try:
        with file.open("rb") as opened:
            opened.seek(since * _RECORD.size)
            content = opened.read()
    except FileNotFoundError:
        return
    whole = memoryview(content)[: len(content) // _RECORD.size * _RECORD.size]
    for t_ns, value, slot, traffic_class, what in _RECORD.iter_unpack(whole):
        yield JournalEntry(t_ns, value, slot, traffic_class, JournalAction(what))
