"""What an agent has sent and received at instants."""

from __future__ import annotations

from array import array
from types import SimpleNamespace
from typing import Any

import pytest

from rocelab.agent import ticks
from rocelab.agent.live import RECORD_BYTES, LiveCounters
from rocelab.agent.live import packed as packed_counters
from rocelab.agent.live import unpacked as unpacked_counters
from rocelab.agent.ticks import PAIRS_PER_TICK, TICK_NS, Tick, Ticks, packed, unpacked

ZERO_NS = 1_795_000_000 * 10**9


def instants(made: Ticks, now_ns: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Number of the interval that ends, sent, received, of what a file has at `now_ns`."""
    monkeypatch.setattr(ticks, "clock_gettime_ns", lambda clock: ZERO_NS + now_ns)
    return [
        ((tick.time_ns - ZERO_NS) // TICK_NS, tick.sent, tick.received)
        for tick in unpacked(made.content())
    ]


def test_probes_are_counted_by_their_stamps(monkeypatch: pytest.MonkeyPatch) -> None:
    flow: Any = SimpleNamespace(sent_ns=array("q", [ZERO_NS + n * 4_000_000 for n in range(10)]))
    log: Any = SimpleNamespace(flow=array("I"), receive_ns=array("q", [ZERO_NS + 9_999_999]))
    made = Ticks([], [flow], log)
    assert made.due_ns > 10**18, "an agent wakes for it though it has no queue pairs"
    assert instants(made, 40_000_000, monkeypatch) == [(1, 3, 1), (2, 5, 1)]
    log.receive_ns.append(ZERO_NS + 21_000_000)
    log.receive_ns.append(ZERO_NS + 9_000_000)  # read late: in the first that is not counted yet
    assert instants(made, 60_000_000, monkeypatch)[2:] == [(3, 8, 3), (4, 10, 3)]


def test_queue_pairs_are_looked_at_ten_milliseconds_apart() -> None:
    requester = SimpleNamespace(counters=SimpleNamespace(packets=7, retransmitted=2))
    pair: Any = SimpleNamespace(
        requester=requester, responder=SimpleNamespace(counters=SimpleNamespace(packets=5))
    )
    log: Any = SimpleNamespace(flow=array("I"), receive_ns=array("q"))
    made = Ticks([pair], [], log)
    made.sample(made.due_ns)
    assert made.due_ns == TICK_NS
    requester.counters.packets = 9
    made.sample(made.due_ns)
    counts = [(tick.sent, tick.received, tick.retransmitted) for tick in unpacked(made.content())]
    assert counts == [(7, 5, 2), (9, 5, 2)]
    many = Ticks([pair] * (PAIRS_PER_TICK + 1), [], log)
    many.sample(0)
    assert many.due_ns == 2 * TICK_NS


def test_instants_follow_the_record_and_half_a_one_is_never_read() -> None:
    record = packed_counters(LiveCounters(pid=3))
    first, second = Tick(20, 4, 3, 1), Tick(10, 2, 2, 0)
    content = record + packed(first) + packed(second) + b"torn"
    assert unpacked_counters(content) == LiveCounters(pid=3)
    assert unpacked(content[RECORD_BYTES:]) == (second, first)
    broken = bytearray(packed(first))
    broken[9] ^= 1
    assert unpacked(bytes(broken) + packed(second)) == (second,)
