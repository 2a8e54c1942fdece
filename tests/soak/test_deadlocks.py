"""Deadlocks by number: the shipped load makes one in each of ten runs on the ring of buffers, each
is freed by a pulled cable, and there is none in ten runs on up-down routes.

The counts are properties of the tests in `results/soak.xml`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from rocelab.dataplane.pfc.reading import PauseReader
from rocelab.lab.lab import RunningLab
from tests.helpers.waiting import wait_until
from tests.integration.test_deadlock import (
    PACKETS,
    break_cables,
    counters,
    delivered,
    load,
    rings,
    shipped,
    wait_for_standstill,
    wait_until_drained,
)

RUNS = 10
PULLED = "rtsw3:ctsw1"
"""A cable of the ring."""

Record = Callable[[str, object], None]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    with shipped("deadlock", tmp_path_factory.mktemp("deadlocks")) as made:
        yield made


def wait_for_packets(reader: PauseReader) -> None:
    due = delivered(counters(reader)) + PACKETS
    wait_until(lambda: delivered(counters(reader)) >= due, f"{PACKETS} more packets at their NICs")


def test_none_of_ten_loads_deadlocks_on_up_down_routes(
    lab: RunningLab, record_property: Record
) -> None:
    completed = 0
    try:
        with PauseReader(lab.fabric) as reader:
            for _ in range(RUNS):
                with load(lab):
                    wait_for_packets(reader)
                wait_until_drained(reader)
                completed += 1
    finally:
        record_property("completed on up-down routes", f"{completed} of {RUNS}")


def test_each_of_ten_loads_deadlocks_on_the_ring(lab: RunningLab, record_property: Record) -> None:
    deadlocks = 0
    try:
        with PauseReader(lab.fabric) as reader:
            candidates = rings(lab, reader)
            for _ in range(RUNS):
                break_cables(lab)
                with load(lab):
                    ring = wait_for_standstill(reader, candidates)
                assert wait_for_standstill(reader, (ring,)) == ring
                deadlocks += 1
                lab.link(PULLED).down()
                wait_until_drained(reader)
                lab.link(PULLED).up()
    finally:
        record_property("deadlocks on the ring", f"{deadlocks} of {RUNS}")
