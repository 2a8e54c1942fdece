"""When a server's queue pairs of a paused class stop and go on (IEEE 802.1Qbb)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.nic import NEVER_NS
from rocelab.agent.pausewatch import PausedPort, PauseTimers

DELAY_NS, QUANTUM_NS, CLASS = 500, 10.0, 3
XON, XOFF = 0, 100


class Port:
    """A port and its timers, by frames of one class and times in ns."""

    def __init__(self) -> None:
        self.nic: Any = SimpleNamespace(paused=0)
        self.timers = PauseTimers({"rtsw1": PausedPort(self.nic, DELAY_NS, QUANTUM_NS)})

    def take(self, quanta: int, now_ns: int, traffic_class: int = CLASS) -> None:
        self.timers.take("rtsw1", {traffic_class: quanta}, now_ns)

    def is_paused(self, now_ns: int, traffic_class: int = CLASS) -> bool:
        self.timers.turn(now_ns)
        return bool(self.nic.paused >> traffic_class & 1)


def test_a_pause_is_obeyed_after_the_ports_response_and_runs_out() -> None:
    port = Port()
    port.take(XOFF, 0)
    assert not port.is_paused(499)
    assert port.is_paused(500)
    assert not port.is_paused(500, traffic_class=4)
    assert port.is_paused(1_499)
    assert not port.is_paused(1_500)
    assert port.timers.turn(1_500) == NEVER_NS


@pytest.mark.parametrize("resumed_ns", [0, 1, 499, 500, 700])
def test_a_resume_ends_a_pause_however_soon_it_comes(resumed_ns: int) -> None:
    """Also where the port had not yet obeyed the pause when the resume arrived."""
    port = Port()
    port.take(XOFF, 0)
    port.take(XON, resumed_ns)
    assert port.is_paused(499 + resumed_ns) == (resumed_ns > 0)
    assert not port.is_paused(500 + resumed_ns)


def test_a_pause_that_is_refreshed_outlasts_the_first_ones_quanta() -> None:
    port = Port()
    port.take(XOFF, 0)
    port.take(XOFF, 600)
    assert port.is_paused(1_500)
    assert not port.is_paused(2_100)


def test_frames_of_another_interface_change_nothing() -> None:
    port = Port()
    port.timers.take("ctsw1", {CLASS: XOFF}, 0)
    assert not port.is_paused(500)


frames = st.lists(st.tuples(st.integers(0, 400), st.sampled_from([XON, 1, 30, XOFF])), max_size=12)


@given(frames, st.lists(st.integers(0, 8_000), min_size=1, max_size=20))
def test_the_last_frame_that_is_due_decides(
    frames: list[tuple[int, int]], looks: list[int]
) -> None:
    port, now_ns = Port(), 0
    arrivals: list[tuple[int, int]] = []
    for gap_ns, quanta in frames:
        now_ns += gap_ns
        arrivals.append((now_ns, quanta))
    taken = 0
    for look_ns in sorted(looks):
        while taken < len(arrivals) and arrivals[taken][0] <= look_ns:
            port.take(arrivals[taken][1], arrivals[taken][0])
            taken += 1
        due = [(at_ns, quanta) for at_ns, quanta in arrivals if at_ns + DELAY_NS <= look_ns]
        expected = bool(due) and due[-1][0] + DELAY_NS + due[-1][1] * QUANTUM_NS > look_ns
        assert port.is_paused(look_ns) == expected
