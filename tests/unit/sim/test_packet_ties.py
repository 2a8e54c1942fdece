"""The packet engine's order of what happens at one instant: the seed draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import permutations

import numpy as np
import pytest

from rocelab.results.engines import PortModel
from rocelab.sim.packets.run import run_packets
from tests.unit.sim.packet_runs import ENDLESS, Flow, arranged, finish_ps, ran

SEEDS = range(60)


def orders(flows: Sequence[Flow], **changes: object) -> set[tuple[int, ...]]:
    """The orders in which flows of a packet each are done, with all seeds."""
    return {
        tuple(np.argsort(finish_ps(ran(flows, replace(ENDLESS, seed=seed), **changes))))
        for seed in SEEDS
    }


def test_of_frames_that_meet_at_one_instant_any_may_be_first() -> None:
    incast = [Flow([2 * number, 20], 4096) for number in range(3)]
    assert orders(incast) == set(permutations(range(3)))


def test_a_nic_sends_what_it_is_given_at_one_instant_in_its_order() -> None:
    flows = [Flow([0, 20], 4096), Flow([0, 20], 4096), Flow([2, 20], 4096), Flow([2, 20], 4096)]
    outcomes = orders(flows)
    assert len(outcomes) > 1
    assert all(
        order.index(0) < order.index(1) and order.index(2) < order.index(3) for order in outcomes
    )


BESIDE = [Flow([4, 30], 10 * 512, mtu=512), Flow([6, 40], 10 * 1024, mtu=1024)]
"""Elsewhere, packets of two sizes, so many that those of a third have no ring."""


@pytest.mark.parametrize(
    ("ports", "payloads", "rates_bps", "beside"),
    [
        (PortModel.STORE_AND_FORWARD, (3204, 1000), {0: 75e9, 2: 25e9}, []),
        (PortModel.STORE_AND_FORWARD, (4096, 4096), {}, BESIDE),
        (PortModel.LAB, (4096, 4096), {0: 75e9, 2: 25e9}, []),
    ],
    ids=["rings of serialisation", "timers", "rings of packets that left early"],
)
def test_so_may_any_of_those_that_were_sent_in_the_same_order(
    ports: PortModel, payloads: tuple[int, int], rates_bps: dict[int, float], beside: list[Flow]
) -> None:
    flows = [Flow([2 * number, 20], payload) for number, payload in enumerate(payloads)]
    firsts = set()
    for seed in SEEDS:
        queues = replace(ENDLESS, ports=ports, seed=seed)
        program, wirings, latency_s, sending, _ = arranged(flows + beside, queues, rates_bps)
        # All of one NIC, which starts its tasks in their order.
        sending = replace(sending, source=np.zeros_like(sending.source))
        done = run_packets(program, wirings, latency_s, sending, queues)
        firsts.add(int(np.argmin(finish_ps(done)[:2])))
    assert firsts == {0, 1}


def test_one_seed_has_one_result() -> None:
    queues = replace(ENDLESS, kmin=5000, kmax=100_000, pmax=0.5, buffer_bytes=60_000, seed=7)
    flows = [Flow([2 * number, 20, 22], 30 * 4096) for number in range(6)]
    first, again = (ran(flows, queues) for _ in range(2))
    assert first.drops.sum() > 0 and first.marks.sum() > 0
    for field in fields(first):
        assert np.array_equal(getattr(first, field.name), getattr(again, field.name))
