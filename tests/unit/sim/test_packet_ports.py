"""When packets leave ports: closed forms of the three models."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocelab.base.errors import InputError
from rocelab.base.options import read_options
from rocelab.results.engines import PortModel
from rocelab.sim.options import Options
from tests.unit.sim.packet_runs import (
    ACK_PS,
    ENDLESS,
    FRAME,
    FULL_PS,
    LATENCY_PS,
    Flow,
    finish_ps,
    ran,
)

CUT = replace(ENDLESS, ports=PortModel.CUT_THROUGH)
LAB = replace(ENDLESS, ports=PortModel.LAB, burst_bytes=FRAME + 24)
HEADER_PS = 64 * 80
PACKETS = 100
ALONE = [Flow([0, 2, 4], PACKETS * 4096)]


def test_a_lab_s_port_adds_no_frame_to_a_packet_s_way() -> None:
    expected = (PACKETS - 1) * FULL_PS + 6 * LATENCY_PS
    assert finish_ps(ran(ALONE, LAB))[0] == pytest.approx(expected, abs=0.5)


def test_a_port_that_cuts_through_adds_a_header_and_the_last_one_a_frame() -> None:
    there, back = (2 * HEADER_PS + size_ps + 3 * LATENCY_PS for size_ps in (FULL_PS, ACK_PS))
    expected = (PACKETS - 1) * FULL_PS + there + back
    assert finish_ps(ran(ALONE, CUT))[0] == pytest.approx(expected, abs=0.5)


def test_a_port_stores_what_goes_to_a_faster_one() -> None:
    done = ran([Flow([0, 2, 4], 4096)], CUT, {2: 200e9, 3: 200e9})
    there = FULL_PS + HEADER_PS / 2 + FULL_PS
    back = ACK_PS + HEADER_PS / 2 + ACK_PS
    assert finish_ps(done)[0] == pytest.approx(there + back + 6 * LATENCY_PS, abs=0.5)


def test_a_lab_s_port_that_was_idle_sends_two_frames_at_once() -> None:
    done = ran([Flow([2 * number, 20], 4096) for number in range(4)], LAB)
    expected = [0, ACK_PS, FULL_PS, 2 * FULL_PS]
    times_ps = sorted(finish_ps(done))
    assert times_ps == pytest.approx([4 * LATENCY_PS + time_ps for time_ps in expected], abs=0.5)
    assert done.highest_bytes[20] == FRAME, "the fourth finds the third"


@pytest.mark.parametrize("model", PortModel)
def test_a_full_port_keeps_its_rate(model: PortModel) -> None:
    flows = [Flow([2 * number, 20, 22], PACKETS * 4096) for number in range(4)]
    done = ran(flows, replace(ENDLESS, ports=model, burst_bytes=FRAME + 24))
    assert max(finish_ps(done)) == pytest.approx(4 * PACKETS * FULL_PS, rel=0.08)
    assert done.sent_bits[[20, 22]].tolist() == [8.0 * 4 * PACKETS * (FRAME + 24)] * 2


def test_a_lab_s_port_saves_up_no_more_than_a_burst() -> None:
    # A packet in each round trip, and each port is idle before it.
    done = ran([Flow([0, 2], PACKETS * 4096, window=1)], LAB)
    assert finish_ps(done)[0] == pytest.approx(PACKETS * 4 * LATENCY_PS, abs=0.5)
    assert done.highest_bytes.max() == 0


def test_ports_that_there_are_not_and_those_of_a_fluid_are_refused() -> None:
    taken = read_options(Options, {"engine": "packets", "ports": "lab"})
    assert taken.ports is PortModel.LAB
    with pytest.raises(InputError, match="--ports: expected store-and-forward, cut-through or lab"):
        read_options(Options, {"engine": "packets", "ports": "fast"})
    with pytest.raises(InputError, match="only the engine packets"):
        read_options(Options, {"ports": "lab"})
