"""Probe flows: a sender's records of its packets."""

from __future__ import annotations

import pytest

from rocelab.agent import prober
from rocelab.agent.prober import ProbeFlow, Prober
from tests.helpers.rc_fakes import FakeOutlet, header


def test_a_packet_whose_sending_takes_long_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender loses its CPU between the stamp and the end of the call."""
    outlet = FakeOutlet()
    flow = ProbeFlow(outlet, header() + bytes(64), 1000, 0)  # type: ignore[arg-type]
    sender = Prober([flow])
    sender.start(0, 10**18)
    ms = 10**6
    readings = iter([2 * ms, 2 * ms + 90_000, 32 * ms])
    monkeypatch.setattr(prober, "monotonic_ns", lambda: next(readings, 33 * ms))
    monkeypatch.setattr(prober, "BATCH", 2)
    sender.send()
    assert flow.sent_ns.tolist() == [10**18 + 2 * ms, 10**18 + 2 * ms + 90_000]
    assert flow.held.tolist() == [1]
    assert flow.held_ns.tolist() == [30 * ms - 90_000]
