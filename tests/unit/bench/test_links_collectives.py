"""Collectives link by link: when sends begin."""

from __future__ import annotations

import numpy as np
import pytest

from bench.links_collectives import begins_s, opened, simulation, waits_for_data
from rocelab.sim.packets.run import run_packets


@pytest.mark.parametrize("pattern", ["allreduce", "alltoall"])
def test_sends_begin_as_packet_by_packet_if_they_take_as_long(pattern: str) -> None:
    made = simulation(pattern, 4, "1MB", "off")
    program, (wiring,), latency_s, sending, queues = made.packet_inputs()
    ran = run_packets(program, [wiring], latency_s, sending, queues)
    took_s = ran.finish_s - ran.start_s
    receives = waits_for_data(program, sending)
    assert receives.any() == (pattern == "allreduce")
    # Data arrives before its last ACK does: here not at all later, so that receivers begin late.
    start_s, end_s = begins_s(program, took_s, np.zeros_like(took_s), receives)
    assert (start_s >= ran.start_s - 1e-11).all() and end_s >= ran.end_s.max() - 1e-11
    if pattern == "alltoall":
        assert start_s.tolist() == pytest.approx(ran.start_s.tolist(), abs=1e-11)
    alone, closed = opened(program, sending)
    assert not len(alone.after) and len(closed.source) == len(closed.window) == program.transfers
