"""Differences of queue counters: the effect of one run, independent of earlier ones."""

from __future__ import annotations

from bisect import bisect_right

from hypothesis import given
from hypothesis import strategies as st

from rocelab.linux.counters import DepthCounters, QueueCounters
from rocelab.observe.queues import differences
from rocelab.planning.queues import bin_edges_bytes
from rocelab.results.job import QueueFigures

PORT = ("rtsw1", "srv1-1")
EDGES = bin_edges_bytes(100, 200, 400)
Depths = list[int]


def by_bin(depths: Depths) -> tuple[int, ...]:
    packets = [0] * len(EDGES)
    for depth in depths:
        packets[bisect_right(EDGES, depth) - 1] += 1
    return tuple(packets)


def counted(depths: Depths, marked: int = 0, dropped: int = 0, run: int = 0) -> QueueCounters:
    """A queue after packets that arrived at these depths, the first of them marked. run: where in
    them the last run began."""
    arrival = DepthCounters(
        max(depths[run:], default=0), sum(depths), by_bin(depths), by_bin(depths[:marked])
    )
    size = len(depths)
    return QueueCounters(size, 100 * size, marked, dropped, 0, 0, marked, arrival)


def between(before: QueueCounters, after: QueueCounters) -> tuple[QueueFigures, ...]:
    return differences({PORT: {3: before}}, {PORT: {3: after}})


def test_a_queue_that_did_nothing_is_left_out() -> None:
    assert between(counted([5, 6]), counted([5, 6])) == ()


def test_a_queue_that_only_dropped_is_told() -> None:
    (queue,) = between(counted([]), counted([], dropped=3))
    assert (queue.packets, queue.dropped_packets, queue.depth_max_bytes) == (0, 3, 0)


def test_packets_bytes_and_marks_are_those_of_the_run() -> None:
    (queue,) = between(counted([50], marked=1), counted([50, 150, 350], marked=3))
    assert (queue.packets, queue.bytes, queue.marked, queue.ce_out) == (2, 200, 2, 2)
    assert (queue.depth_max_bytes, queue.depth_mean_bytes) == (350, 250.0)
    assert queue.packets_by_depth == queue.marked_by_depth == by_bin([150, 350])


def test_what_the_engine_red_can_not_count_stays_unknown() -> None:
    red = QueueCounters(7, 700, 1, 0, 0, None, None, None)
    (queue,) = differences({}, {PORT: {3: red}})
    assert (queue.packets, queue.marked, queue.ce_out) == (7, 1, None)
    assert (queue.depth_max_bytes, queue.depth_mean_bytes) == (None, None)
    assert queue.packets_by_depth == queue.marked_by_depth == ()


@given(
    before=st.lists(st.integers(0, 1000)),
    new=st.lists(st.integers(0, 1000), min_size=1),
)
def test_depths_are_those_of_the_run_though_the_queue_was_deeper_before(
    before: Depths, new: Depths
) -> None:
    (queue,) = between(counted(before), counted(before + new, run=len(before)))
    assert queue.depth_max_bytes == max(new)
    assert queue.depth_mean_bytes == sum(new) / len(new)
    assert queue.packets_by_depth == by_bin(new)
