"""The offset of the two clocks, from readings between which the process may lose its CPU."""

from __future__ import annotations

import pytest

from rocelab.agent import agent

OFFSET_NS = 1_700_000_000 * 10**9
READ_NS = 40


class Clocks:
    """Two clocks, OFFSET_NS apart; reading one takes READ_NS, and `held_ns` longer before the
    readings with these numbers."""

    def __init__(self, held_ns: dict[int, int]) -> None:
        self._held_ns = held_ns
        self._now_ns = 10**12
        self._readings = 0

    def _read(self) -> int:
        self._now_ns += READ_NS + self._held_ns.get(self._readings, 0)
        self._readings += 1
        return self._now_ns

    def monotonic_ns(self) -> int:
        return self._read()

    def realtime_ns(self, clock: int) -> int:
        return self._read() + OFFSET_NS


def offset_ns(monkeypatch: pytest.MonkeyPatch, held_ns: dict[int, int]) -> int:
    clocks = Clocks(held_ns)
    monkeypatch.setattr(agent, "monotonic_ns", clocks.monotonic_ns)
    monkeypatch.setattr(agent, "clock_gettime_ns", clocks.realtime_ns)
    return agent.clock_offset_ns()


@pytest.mark.parametrize("whole", [0, 5, 15])
def test_of_several_pairs_of_clock_readings_the_fastest_counts(
    monkeypatch: pytest.MonkeyPatch, whole: int
) -> None:
    """A pair is three readings; all but one lose the CPU for 7 ms, before or after the second."""
    held = {3 * pair + 1 + pair % 2: 7 * 10**6 for pair in range(16) if pair != whole}
    assert offset_ns(monkeypatch, held) == OFFSET_NS
    assert abs(offset_ns(monkeypatch, held | {3 * whole + 1: 10**6}) - OFFSET_NS) == 10**6 // 2
