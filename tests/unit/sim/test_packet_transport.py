"""The packet engine's queue pairs under loss: NAKs, timeouts and what is sent again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.unit.sim.packet_runs import (
    ACK_PS,
    ENDLESS,
    FRAME,
    FULL_PS,
    LATENCY_PS,
    ONE_WAITS,
    OTHERS,
    Flow,
    finish_ps,
    ran,
)


def test_a_lost_packet_without_another_behind_it_is_sent_again_at_the_timeout() -> None:
    done = ran([*OTHERS, Flow([4, 20], 4096, timeout_ns=50_000)], ONE_WAITS)
    alone = 2 * (FULL_PS + LATENCY_PS) + 2 * (ACK_PS + LATENCY_PS)
    assert finish_ps(done)[2] == pytest.approx(50_000_000 + alone, abs=0.5)
    assert done.timeouts.tolist() == done.retransmitted.tolist() == [0, 0, 1]
    assert done.naks.sum() == 0


def test_a_gap_is_closed_by_one_nak_and_all_from_it_on() -> None:
    done = ran([*OTHERS, Flow([4, 20], 3 * 4096)], ONE_WAITS)
    # The second packet waits for those of the others, and its NAK comes back to an idle NIC.
    nak = 4 * FULL_PS + 2 * LATENCY_PS + 2 * (ACK_PS + LATENCY_PS)
    again = 4 * FULL_PS + 2 * LATENCY_PS + 2 * (ACK_PS + LATENCY_PS)
    assert finish_ps(done)[2] == pytest.approx(nak + again, abs=0.5)
    assert (done.naks[2], done.retransmitted[2], done.timeouts[2]) == (1, 3, 0)


def test_a_queue_pair_gives_up_after_its_retries() -> None:
    # A buffer too small for any packet.
    done = ran([Flow([0, 20], 4096, retries=3)], replace(ENDLESS, buffer_bytes=FRAME - 1))
    assert (done.failed, done.timeouts[0], done.packets) == (1, 4, 4)
    assert np.isinf(done.finish_s[0])


def test_an_ack_in_time_moves_the_deadline_on() -> None:
    # The whole takes far longer than the timeout; no ACK does.
    done = ran([Flow([0, 2], 1000 * 4096, timeout_ns=30_000, window=16)])
    assert finish_ps(done)[0] > 10 * 30_000_000
    assert done.timeouts[0] == done.retransmitted[0] == 0


def test_a_timeout_shorter_than_the_round_trip_sends_again_what_was_not_lost() -> None:
    done = ran([Flow([0, 2], 4096, timeout_ns=3000)])
    assert (done.timeouts[0], done.retransmitted[0], done.drops.sum()) == (1, 1, 0)
    assert done.acks == 2, "a duplicate is acknowledged again"


def test_transfers_of_a_queue_pair_survive_losses_in_their_order() -> None:
    flows = [Flow([2 * number, 20, 22], 37 * 4096 + 100) for number in range(6)]
    done = ran(flows, replace(ENDLESS, buffer_bytes=7 * FRAME), window=32, retries=100, message=5)
    assert done.drops.sum() > 0 and np.isfinite(done.finish_s).all()
    assert done.packets == 6 * 38 + done.retransmitted.sum()


def test_an_ack_that_comes_before_the_turn_to_send_again_leaves_nothing_to_send() -> None:
    trip = 2 * (FULL_PS + LATENCY_PS) + 2 * (ACK_PS + LATENCY_PS)
    flows = [
        Flow([0, 2], 4096, timeout_ns=trip // 1000 - 1),
        Flow([0, 2], 200 * 4096, timeout_ns=10**9),
    ]
    done = ran(flows)
    assert done.timeouts.tolist() == [1, 0]
    assert done.retransmitted.tolist() == [0, 0]
    assert done.packets == 201
