"""Packets of all traffic in steps of 10 ms, from what its agents publish."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rocelab.agent.live import LiveCounters
from rocelab.agent.live import packed as packed_counters
from rocelab.agent.ticks import TICK_NS, Tick, packed
from rocelab.live.ticks import SILENT_NS, TickReader, steps_of
from rocelab.record import LabFiles


def ticks(*entries: tuple[float, int, int]) -> list[Tick]:
    """Ticks at these numbers of steps, with packets sent and received by then."""
    return [Tick(round(at * TICK_NS), sent, received, 0) for at, sent, received in entries]


def test_what_all_agents_have_sent_and_received_is_summed() -> None:
    sender = ticks((10, 0, 0), (11, 8, 0), (12, 16, 0), (13, 24, 0))
    receiver = ticks((10, 0, 0), (11, 0, 8), (12, 0, 9))
    steps = steps_of([sender, receiver], 0)
    assert steps is not None
    assert (steps.t_ns, steps.sent, steps.received) == (10 * TICK_NS, [8, 8], [8, 1])


def test_between_two_instants_of_an_agent_its_packets_are_spread_evenly() -> None:
    steps = steps_of([ticks((9.5, 0, 0), (10.5, 10, 0), (12.5, 10, 4))], 0)
    assert steps is not None
    assert (steps.t_ns, steps.sent, steps.received) == (10 * TICK_NS, [5, 0], [1, 2])


def test_an_agent_that_has_gone_silent_is_not_waited_for() -> None:
    silent_steps = SILENT_NS // TICK_NS
    gone = ticks((1, 5, 5))
    running = ticks((silent_steps, 0, 0), (silent_steps + 2, 6, 6))
    steps = steps_of([gone, running], 0)
    assert steps is not None
    assert list(steps.sent) == [3, 3]


def test_steps_are_read_once_and_kept_for_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.record.RUN_ROOT", tmp_path)
    file = tmp_path / "t-ticks" / "endpoints" / "srv1-1"
    file.parent.mkdir(parents=True)
    reader = TickReader(LabFiles("t-ticks"))

    def new_steps(entries: Sequence[Tick]) -> Sequence[int] | None:
        file.write_bytes(packed_counters(LiveCounters()) + b"".join(map(packed, entries)))
        steps = reader.new_steps()
        return None if steps is None else steps.sent

    assert reader.new_steps() is None
    assert new_steps(ticks((1, 0, 0), (3, 4, 4))) == [2, 2]
    assert new_steps(ticks((1, 0, 0), (3, 4, 4))) is None
    assert new_steps(ticks((2, 2, 2), (3, 4, 4), (5, 4, 4))) == [0, 0]
    kept = reader.kept()
    assert kept is not None
    assert (kept.t_ns, list(kept.sent)) == (TICK_NS, [2, 2, 0, 0])
    # Another run, later.
    assert new_steps(ticks((90, 0, 0), (91, 7, 7))) == [7]
    kept = reader.kept()
    assert kept is not None
    assert (kept.t_ns, list(kept.sent)) == (90 * TICK_NS, [7])
