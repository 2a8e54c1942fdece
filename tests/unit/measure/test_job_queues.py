"""Differences of queue counters: the effect of one run, independent of earlier ones."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocelab.kernel.counters import DepthCounters, QueueCounters
from rocelab.measure.queues import differences
from rocelab.results.job import QueueFigures

PORT = ("rtsw1", "srv1-1")
EDGES = (0, 100, 200, 400)
Depths = list[int]


def bin_of(depth: int) -> int:
    return max(index for index, edge in enumerate(EDGES) if edge <= depth)


def counted(depths: Depths, marked: int = 0, dropped: int = 0) -> QueueCounters:
    """A queue after packets that arrived at these depths."""
    packets = [0] * len(EDGES)
    for depth in depths:
        packets[bin_of(depth)] += 1
    arrival = DepthCounters(max(depths, default=0), sum(depths), tuple(packets), (0,) * len(EDGES))
    size = len(depths)
    return QueueCounters(size, 100 * size, marked, dropped, 0, 0, marked, arrival)


def between(before: QueueCounters, after: QueueCounters) -> tuple[QueueFigures, ...]:
    return differences({PORT: {3: before}}, {PORT: {3: after}}, EDGES)


def test_a_queue_that_did_nothing_is_left_out() -> None:
    assert between(counted([5, 6]), counted([5, 6])) == ()


def test_a_queue_that_only_dropped_is_told() -> None:
    (queue,) = between(counted([]), counted([], dropped=3))
    assert (queue.packets, queue.dropped_packets, queue.depth_max_bytes) == (0, 3, 0)


def test_packets_bytes_and_marks_are_those_of_the_run() -> None:
    (queue,) = between(counted([50], marked=1), counted([50, 150, 350], marked=3))
    assert (queue.packets, queue.bytes, queue.marked, queue.ce_out) == (2, 200, 2, 2)
    assert (queue.depth_max_bytes, queue.depth_mean_bytes) == (350, 250.0)


def test_what_the_engine_red_can_not_count_stays_unknown() -> None:
    red = QueueCounters(7, 700, 1, 0, 0, None, None, None)
    (queue,) = differences({}, {PORT: {3: red}}, EDGES)
    assert (queue.packets, queue.marked, queue.ce_out) == (7, 1, None)
    assert (queue.depth_max_bytes, queue.depth_mean_bytes) == (None, None)


@given(
    before=st.lists(st.integers(0, 1000)),
    new=st.lists(st.integers(0, 1000), min_size=1),
)
def test_the_deepest_is_never_below_the_truth(before: Depths, new: Depths) -> None:
    (queue,) = between(counted(before), counted(before + new))
    assert queue.depth_max_bytes is not None
    assert queue.depth_max_bytes >= max(new)
    assert queue.depth_mean_bytes == sum(new) / len(new)
    if max(new) > max(before, default=0):
        assert queue.depth_max_bytes == max(new)
