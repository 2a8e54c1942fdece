"""What the program sees of words that are written while it runs."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from array import array
from struct import Struct

import pytest

from rocelab.dataplane.pfc.maps import Events
from rocelab.linux import bpf

SIZE = 1 << 16
RECORD_BYTES = 40
EVENTS = 200_000
ENDED = 64
"""A word behind the reader's position, by which the test ends its watcher."""


@pytest.fixture
def ring(monkeypatch: pytest.MonkeyPatch) -> int:
    """A ring buffer with many waiting events: at each place there is a record of an event."""
    monkeypatch.setattr(bpf, "max_entries", lambda _: SIZE)
    descriptor = os.memfd_create("ring")
    records = array("I", [RECORD_BYTES - 8]) * (2 * SIZE // 4)
    os.pwrite(descriptor, records.tobytes(), 2 * mmap.PAGESIZE)
    os.pwrite(descriptor, Struct("=Q").pack(EVENTS * RECORD_BYTES), mmap.PAGESIZE)
    return descriptor


def test_the_position_of_a_reader_never_goes_back_so_no_event_finds_the_ring_full(
    ring: int,
) -> None:
    with (
        mmap.mmap(ring, mmap.PAGESIZE) as page,
        memoryview(page) as view,
        view.cast("Q") as words,
    ):
        watcher = multiprocessing.get_context("fork").Process(target=_watch, args=(words,))
        watcher.start()
        try:
            with Events(ring) as events:
                assert sum(1 for _ in events.read()) == EVENTS
        finally:
            words[ENDED] = 1
            watcher.join()
        assert watcher.exitcode == 0
        assert words[0] == EVENTS * RECORD_BYTES
    os.close(ring)


def _watch(words: memoryview) -> None:
    last = 0
    while not words[ENDED]:
        at = words[0]
        assert at >= last, "the position went back"
        last = at
