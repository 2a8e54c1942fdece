"""Queue pairs that send again only what is missing (`transport.selective_repeat`)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from rocelab.base.errors import InputError, SpecError
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job
from rocelab.jobs.options import job_from_options
from rocelab.sim.packets.run import run_packets
from tests.unit.jobs.test_jobplan import fabric, job
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
from tests.unit.sim.test_packet_oracle import figures_of_engine, random_case

TRIP_PS = 2 * (FULL_PS + LATENCY_PS) + 2 * (ACK_PS + LATENCY_PS)


def test_of_three_packets_the_one_that_is_lost_is_sent_again() -> None:
    outcomes = [
        ran([*OTHERS, Flow([4, 20], 3 * 4096, selective=is_selective)], ONE_WAITS)
        for is_selective in (False, True)
    ]
    assert [done.retransmitted[2] for done in outcomes] == [3, 1]
    # Each packet beyond the gap is named.
    assert [done.naks[2] for done in outcomes] == [1, 2]
    assert finish_ps(outcomes[1])[2] < finish_ps(outcomes[0])[2]
    assert [done.timeouts.sum() for done in outcomes] == [0, 0]
    assert outcomes[1].packets == 2 + 3 + 1


def test_a_lost_packet_with_none_behind_it_is_sent_again_at_the_timeout() -> None:
    flow = Flow([4, 20], 4096, timeout_ns=50_000, selective=True)
    done = ran([*OTHERS, flow], ONE_WAITS)
    assert finish_ps(done)[2] == pytest.approx(50_000_000 + TRIP_PS, abs=0.5)
    assert done.timeouts.tolist() == done.retransmitted.tolist() == [0, 0, 1]


@pytest.mark.parametrize("seed", range(12))
def test_without_loss_it_is_go_back_n_to_the_bit(seed: int) -> None:
    program, wirings, latency_s, sending, queues, _ = random_case(seed, False, False)
    queues = replace(queues, buffer_bytes=10**9)
    sending = replace(sending, ack_timeout_ns=np.full_like(sending.window, 10**9))
    ones = np.ones_like(sending.window)
    selective = replace(sending, selective=ones, reach=sending.window)
    outcomes = [
        figures_of_engine(run_packets(program, wirings, latency_s, outcome, queues))
        for outcome in (sending, selective)
    ]
    assert outcomes[0] == outcomes[1]
    assert sum(outcomes[0]["drops"]) == 0  # type: ignore[call-overload]


@pytest.mark.parametrize("seed", range(40))
def test_each_byte_comes_once_and_each_loss_is_sent_again_once(seed: int) -> None:
    """On one path, whose ACKs nothing holds up: what is sent again is what was lost, and what
    timeouts take for lost."""
    random = Random(seed)
    flows = [
        Flow(
            [2 * number, 20, 22],
            random.randint(1, 60) * 4096,
            window=random.choice([4, 16, 32, 64]),
            ack_every=random.choice([1, 4, 16]),
            message=random.choice([1, 5, 40]),
            retries=1000,
            timeout_ns=random.choice([40_000, 10**6]),
            selective=True,
        )
        for number in range(random.randint(2, 6))
    ]
    done = ran(flows, replace(ENDLESS, buffer_bytes=random.randint(1, 8) * FRAME, seed=seed))
    needed = sum(flow.payload // 4096 for flow in flows)
    assert np.isfinite(done.finish_s).all() and not done.failed
    assert done.packets == needed + done.retransmitted.sum()
    again = int(done.retransmitted.sum()) - int(done.drops.sum())
    windows = np.array([flow.window for flow in flows])
    assert 0 <= again <= (done.timeouts * windows).sum()
    if not done.timeouts.any():
        assert again == 0


def test_the_lab_refuses_it_and_so_does_a_receiver_of_any_order() -> None:
    with pytest.raises(InputError, match=r"selective_repeat: the NICs of a lab go back N"):
        plan_job(fabric(), job(transport={"selective_repeat": True}))
    keys = {"pattern": "pairs", "ranks": "2", "size": "1MB"}
    assert job_from_options(keys | {"selective-repeat": "true"}).transport.selective_repeat
    with pytest.raises(SpecError, match="a gap causes no NAK where packets may come in any order"):
        job_from_options(keys | {"selective-repeat": "true", "out-of-order": "true"})
    assert not JobSpec.model_validate(keys | {"ranks": 2}).transport.selective_repeat
