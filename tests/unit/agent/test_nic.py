"""A NIC in virtual time: its link's rate, turns, control packets, and the cost of lateness."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.nic import (
    BATCH,
    CATCH_UP_NS,
    NEVER_NS,
    SECOND_NS,
    WIRE_OVERHEAD_BYTES,
    AgentNic,
    FrameOutlet,
)
from rocelab.agent.rc.queue_pair import QueuePair
from rocelab.jobs.dcqcn_profiles import parameters
from tests.helpers.rc_fakes import MS, FakeOutlet, header, nic, pair_settings

FRAME_BYTES = 1082
WIRE_BITS = 8 * (FRAME_BYTES + WIRE_OVERHEAD_BYTES)
RATE_BPS = 10**9
FRAME_NS = WIRE_BITS * SECOND_NS / RATE_BPS


class Flood:
    """A source that always has packets; its frames contain its name."""

    def __init__(self, name: int, frames: int = 10**9, due_ns: int = 0) -> None:
        self.active = False
        self.traffic_class = 3
        self.frame = name.to_bytes(4, "big").ljust(FRAME_BYTES, b"\0")
        self.left = frames
        self.start_ns = due_ns

    def due_ns(self, now_ns: int) -> int:
        return max(now_ns, self.start_ns) if self.left else NEVER_NS

    def emit(self, outlet: FrameOutlet, limit: int, now_ns: int, free_ns: float) -> int:
        assert limit >= 1
        assert free_ns <= now_ns
        count = min(limit, self.left)
        for _ in range(count):
            outlet.append(self.frame)
        self.left -= count
        return count * FRAME_BYTES


def flooded(*names: int) -> tuple[AgentNic, FakeOutlet]:
    outlet = FakeOutlet()
    port = nic(outlet, RATE_BPS, FRAME_BYTES)
    for name in names:
        port.activate(Flood(name))
    return port, outlet


def run(port: AgentNic, end_ns: int, latest_us: int, seed: int) -> int:
    """Call a NIC like a machine that sleeps up to `latest_us` too long; return the last call's
    time."""
    rng = random.Random(seed)
    now_ns = last_ns = 0
    while now_ns < end_ns:
        last_ns, next_ns = now_ns, port.send(now_ns)
        assert next_ns >= now_ns
        now_ns = next_ns if next_ns == now_ns else next_ns + rng.randrange(latest_us * 1000 + 1)
    return last_ns


def names_of(outlet: FakeOutlet) -> list[int]:
    return [int.from_bytes(frame[:4], "big") for frame in outlet.sent]


def pair(rate_bps: float, number: int = 5, messages: int = 1000) -> tuple[QueuePair, FakeOutlet]:
    """A queue pair that congestion control limits to `rate_bps`, alone on its NIC."""
    outlet = FakeOutlet()
    limited = replace(pair_settings(window=1 << 22), dcqcn=parameters("sigcomm15", 40 * 10**9))
    queue_pair = QueuePair(number, nic(outlet, RATE_BPS, FRAME_BYTES), header(), limited, rate_bps)
    for _ in range(messages):
        queue_pair.post(1 << 20, 1)
    return queue_pair, outlet


@given(
    sources=st.integers(1, 5),
    seed=st.integers(0, 1000),
    latest_us=st.sampled_from([0, 50, 500, 4000]),
)
def test_the_links_rate_is_kept_within_one_percent_by_a_machine_that_wakes_late(
    sources: int, seed: int, latest_us: int
) -> None:
    port, outlet = flooded(*range(sources))
    last_ns = run(port, 50 * MS, latest_us, seed)
    sent_bits = len(outlet.sent) * WIRE_BITS
    assert sent_bits == pytest.approx(RATE_BPS * last_ns / SECOND_NS, rel=0.01)
    assert port.busy_ns == pytest.approx(len(outlet.sent) * FRAME_NS)
    assert port.lost_ns == 0


@given(sources=st.integers(1, 5), step_us=st.sampled_from([1, 7, 100, 1000, 4000]))
def test_the_link_is_never_faster_than_its_rate_however_often_it_is_asked(
    sources: int, step_us: int
) -> None:
    port, outlet = flooded(*range(sources))
    for now_ns in range(0, 20 * MS, step_us * 1000):
        port.send(now_ns)
        assert (len(outlet.sent) - 1) * FRAME_NS <= now_ns


def test_a_wake_up_in_time_sends_one_frame_and_says_when_the_link_is_free() -> None:
    port, outlet = flooded(1, 2)
    assert port.send(0) == int(FRAME_NS) + 1
    assert outlet.batches == [1]


@given(count=st.integers(2, 40), alone_ns=st.integers(0, 3 * MS))
def test_queue_pairs_take_turns_packet_by_packet(count: int, alone_ns: int) -> None:
    port, outlet = flooded(0)
    port.send(0)
    port.send(alone_ns)
    for name in range(1, count):
        port.activate(Flood(name))
    outlet.sent.clear()
    now_ns = alone_ns
    while len(outlet.sent) < 5 * count:
        now_ns = port.send(now_ns)
    names = names_of(outlet)
    for start in range(len(names) - count + 1):
        assert len(set(names[start : start + count])) == count


def test_a_queue_pair_with_nothing_left_gives_its_turns_to_the_others() -> None:
    port, outlet = flooded(1)
    short = Flood(2, frames=3)
    port.activate(short)
    now_ns = 0
    while len(outlet.sent) < 20:
        now_ns = port.send(now_ns)
    assert Counter(names_of(outlet)) == {1: 17, 2: 3}
    assert names_of(outlet)[:7] == [1, 2, 1, 2, 1, 2, 1]
    assert not short.active
    short.left = 1
    port.activate(short)
    while len(outlet.sent) < 25:
        now_ns = port.send(now_ns)
    assert names_of(outlet)[20:].count(2) == 1


def test_a_queue_pair_activated_twice_has_one_turn() -> None:
    port, outlet = flooded(1)
    twice = Flood(2)
    port.activate(twice)
    port.activate(twice)
    now_ns = 0
    while len(outlet.sent) < 10:
        now_ns = port.send(now_ns)
    assert names_of(outlet) == [1, 2] * 5


def test_control_packets_go_first_and_take_their_time_of_the_link() -> None:
    port, outlet = flooded(1)
    for _ in range(3):
        port.control(b"c" * FRAME_BYTES)
    free_ns = port.send(0)
    assert [frame[:1] for frame in outlet.sent] == [b"c"] * 3
    assert free_ns == pytest.approx(3 * FRAME_NS, abs=2)
    assert port.send(free_ns) > free_ns
    assert names_of(outlet)[3:] == [1]
    port.control(b"c" * 62)
    port.send(free_ns + 1)
    assert outlet.sent[-1] == b"c" * 62


@pytest.mark.parametrize("with_data", [False, True])
def test_more_control_packets_than_a_batch_all_leave_before_data(with_data: bool) -> None:
    outlet = FakeOutlet()
    port = nic(outlet, RATE_BPS, FRAME_BYTES)
    if with_data:
        port.activate(Flood(1))
    for _ in range(3 * BATCH + 5):
        port.control(b"c" * 62)
    next_ns = 0
    for _ in range(4):
        assert next_ns == 0
        next_ns = port.send(0)
    assert outlet.batches == [BATCH, BATCH, BATCH, 5]
    assert set(outlet.sent) == {b"c" * 62}
    assert (next_ns == NEVER_NS) is not with_data


def test_an_idle_nic_asks_for_nothing_and_earns_nothing() -> None:
    port, outlet = flooded()
    assert port.send(0) == NEVER_NS
    source = Flood(1)
    port.activate(source)
    assert port.send(SECOND_NS) == SECOND_NS + int(FRAME_NS) + 1
    assert len(outlet.sent) == 1
    assert (port.lost_ns, len(port.late_ns)) == (0, 0)
    source.left = 0
    assert port.send(2 * SECOND_NS) == NEVER_NS
    source.left = 100
    port.activate(source)
    outlet.sent.clear()
    port.send(3 * SECOND_NS)
    assert len(outlet.sent) == 1


def test_a_queue_pair_that_falls_silent_leaves_no_lost_time_behind() -> None:
    outlet = FakeOutlet()
    port = nic(outlet, RATE_BPS, FRAME_BYTES)
    source = Flood(1, frames=1)
    port.activate(source)
    assert port.send(0) == NEVER_NS
    source.left = 1000
    port.activate(source)
    port.send(4 * MS)
    assert len(outlet.sent) == 2
    assert (port.lost_ns, len(port.late_ns)) == (0, 0)


def test_a_late_machine_catches_up_within_a_bound_and_the_rest_is_lost_time() -> None:
    port, outlet = flooded(1, 2)
    now_ns = port.send(0)
    outlet.sent.clear()
    late_ns = 30 * MS
    now_ns += late_ns
    while port.send(now_ns) <= now_ns:
        pass
    assert len(outlet.sent) == pytest.approx(CATCH_UP_NS / FRAME_NS, abs=2)
    assert max(outlet.batches) == BATCH
    assert port.lost_ns == pytest.approx(late_ns - CATCH_UP_NS, abs=2 * FRAME_NS)
    assert max(port.late_ns) == pytest.approx(late_ns, abs=2)


def test_lateness_within_the_bound_loses_nothing() -> None:
    port, outlet = flooded(1)
    now_ns = port.send(0) + CATCH_UP_NS - MS
    while port.send(now_ns) <= now_ns:
        pass
    assert len(outlet.sent) * FRAME_NS == pytest.approx(now_ns, rel=0.01)
    assert port.lost_ns == 0


def test_a_machine_late_for_packets_that_wait_for_their_rate_loses_time_too() -> None:
    queue_pair, _ = pair(10**6)
    due_ns = queue_pair.nic.send(0)
    assert due_ns == pytest.approx(WIRE_BITS * SECOND_NS / 10**6, rel=0.02)
    queue_pair.nic.send(due_ns + 20 * MS)
    assert queue_pair.nic.lost_ns == pytest.approx(20 * MS - CATCH_UP_NS, abs=10)


def test_refused_frames_are_counted() -> None:
    port, outlet = flooded(1)
    outlet.refuse = (0, 2)
    port.send(0)
    port.send(10 * int(FRAME_NS))
    assert port.refused == 3


@given(
    rate_bps=st.sampled_from([10**6, 10**7, 10**8, 9 * 10**8]),
    seed=st.integers(0, 100),
    latest_us=st.sampled_from([0, 50, 1000, 4000]),
)
def test_a_queue_pair_keeps_its_own_rate_within_one_percent(
    rate_bps: int, seed: int, latest_us: int
) -> None:
    queue_pair, outlet = pair(rate_bps)
    last_ns = run(queue_pair.nic, 500 * WIRE_BITS * SECOND_NS // rate_bps, latest_us, seed)
    sent_bits = sum(8 * (len(frame) + WIRE_OVERHEAD_BYTES) for frame in outlet.sent)
    assert sent_bits == pytest.approx(rate_bps * last_ns / SECOND_NS, rel=0.01)


def test_neither_idleness_nor_waiting_for_others_earns_a_queue_pair_a_burst() -> None:
    queue_pair, outlet = pair(RATE_BPS / 10, messages=0)
    queue_pair.post(1024, 1)
    assert queue_pair.nic.send(0) == NEVER_NS
    queue_pair.post(1 << 20, 2)
    queue_pair.nic.send(SECOND_NS)
    assert len(outlet.sent) == 2
    for name in range(9):
        queue_pair.nic.activate(Flood(name))
    now_ns = SECOND_NS
    while now_ns < SECOND_NS + 50 * MS:
        now_ns = queue_pair.nic.send(now_ns)
    assert queue_pair.rate_limit is not None
    queue_pair.rate_limit.rate_bps = RATE_BPS / 1000
    outlet.sent.clear()
    while now_ns < SECOND_NS + 54 * MS:
        now_ns = queue_pair.nic.send(now_ns)
    assert sum(frame[:6] == header()[:6] for frame in outlet.sent) <= 2


def test_a_notification_slows_the_queue_pair_and_its_timer_brings_it_back() -> None:
    queue_pair, outlet = pair(RATE_BPS)
    queue_pair.on_cnp(0)
    now_ns = 0
    while now_ns < MS // 20:
        now_ns = queue_pair.nic.send(now_ns)
    assert len(outlet.sent) * FRAME_NS == pytest.approx(MS / 20 / 2, rel=0.15)
    assert queue_pair.cnps_received == 1
    while now_ns < 2 * MS:
        now_ns = queue_pair.nic.send(now_ns)
    outlet.sent.clear()
    while now_ns < 4 * MS:
        now_ns = queue_pair.nic.send(now_ns)
    assert len(outlet.sent) * FRAME_NS == pytest.approx(2 * MS, rel=0.02)
