"""The packet engine's switch ports: buffers, marks and classes, by closed forms."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

import numpy as np
import pytest

from rocelab.base.errors import InputError
from rocelab.labfile.portsettings import ClassQueues
from rocelab.labfile.queues import EcnSpec
from rocelab.planning.queues import bin_edges_bytes
from rocelab.sim.packets import build, loop, run
from rocelab.sim.packets import state as at
from rocelab.sim.packets.ports import draw
from rocelab.sim.packets.sending import Queues
from tests.helpers.queue_lines import mark_probability
from tests.unit.sim.packet_runs import ENDLESS, FRAME, FULL_PS, Flow, arranged, finish_ps, ran

MESSAGE = 100 * 4096


def test_a_buffer_drops_what_it_cannot_hold() -> None:
    # Two packets come in the time of one; all are sent before the first loss can be noticed.
    flows = [Flow([0, 20], MESSAGE), Flow([2, 20], MESSAGE)]
    queues = replace(ENDLESS, buffer_bytes=20 * FRAME)
    done = ran(flows, queues, latency_ps=10**9, timeout_ns=10**8, retries=0)
    assert done.drops[20] == done.drops.sum() == 100 - 20
    assert done.highest_bytes[20] == 19 * FRAME, "the last one that fits finds the others"
    assert (done.failed, np.isinf(done.finish_s).tolist()) == (1, [False, True])


def test_what_is_dropped_is_sent_again_until_all_has_arrived() -> None:
    flows = [Flow([2 * number, 20, 22], MESSAGE) for number in range(4)]
    done = ran(flows, replace(ENDLESS, buffer_bytes=20 * FRAME), window=64, retries=100)
    assert done.drops[20] == done.drops.sum() > 0
    assert done.packets == 400 + done.retransmitted.sum()
    assert np.isfinite(done.finish_s).all() and not done.failed
    # What did not get lost was carried once more.
    assert done.sent_bits[22] == 8 * (FRAME + 24) * (done.packets - done.drops.sum())


def test_marks_are_binomial_at_a_constant_depth() -> None:
    # A window of 40 packets stands before a port of half the rate: each arrival finds as many.
    ecn = EcnSpec.model_construct(kmin=20 * FRAME, kmax=60 * FRAME, pmax=0.3)
    queues = replace(ENDLESS, kmin=ecn.kmin, kmax=ecn.kmax, pmax=ecn.pmax)
    packets = 20_000
    done = ran([Flow([0, 2], packets * 4096, window=40)], queues, {2: 50e9}, latency_ps=1000)
    probability = mark_probability(ecn, done.highest_bytes[2])
    assert 0.1 < probability < 0.2
    spread = (packets * probability * (1 - probability)) ** 0.5
    assert abs(done.marks[2] - packets * probability) < 5 * spread
    assert done.marked[0] == done.marks[2]
    assert done.marks.sum() == done.marks[2], "a NIC marks nothing"
    floors = bin_edges_bytes(ecn.kmin, ecn.kmax, queues.buffer_bytes)
    came, marked = done.marking[bisect_right(floors, done.highest_bytes[2]) - 1].tolist()
    assert done.marking[:, 1].sum() == done.marks[2]
    assert packets - 80 <= came <= packets, "but for those before 40 are in flight, two times 40"
    assert done.marks[2] - 80 <= marked <= done.marks[2]


def test_marks_are_those_of_a_class_that_is_marked_and_of_packets_that_can_be() -> None:
    queues = replace(ENDLESS, kmin=1, kmax=2)
    flows = [Flow([0, 20], MESSAGE), Flow([2, 20], MESSAGE)]
    assert ran(flows, queues).marks[20] == 200 - 3, "three find an empty queue"
    assert ran(flows, queues, ecn=at.NOT_ECT).marks.sum() == 0
    assert ran(flows, queues, classes=(0, 6, 5)).marks.sum() == 0
    marked = ran(flows, queues, ecn=at.ALL_CE)
    assert (marked.marks.sum(), marked.marked.sum()) == (0, 200)


def test_another_seed_marks_others_and_the_same_one_the_same() -> None:
    queues = replace(ENDLESS, kmin=FRAME, kmax=100 * FRAME, pmax=0.5)
    flows = [Flow([2 * number, 20], MESSAGE) for number in range(3)]
    first, again, other = (ran(flows, replace(queues, seed=seed)) for seed in (1, 1, 2))
    assert first.marked.tolist() == again.marked.tolist() != other.marked.tolist()


def test_random_numbers_are_even_and_a_port_s_own() -> None:
    words = np.array([[draw(1, port, count) for count in range(4000)] for port in range(4)])
    counts = np.bincount((words >> 25).ravel(), minlength=64)
    expected = words.size / 64
    assert ((counts - expected) ** 2 / expected).sum() < 130, "chi square of 63 degrees"
    shifted = np.corrcoef(words[0, 1:], words[0, :-1])[0, 1]
    assert abs(shifted) < 0.08 and abs(np.corrcoef(words)[0, 1]) < 0.08


def test_random_numbers_are_the_same_in_code_that_is_not_compiled() -> None:
    plain = getattr(draw, "py_func", draw)
    assert plain(1, np.int32(20), 3) == draw(1, 20, 3)


@pytest.mark.parametrize(("ack_class", "waits"), [(6, False), (3, True)])
def test_a_strict_class_passes_a_queue_of_data(ack_class: int, waits: bool) -> None:
    # The ACK of flow 0 comes by port 1, which three other flows fill.
    flows = [Flow([0, 2], 4096), *(Flow([3 + 2 * i, 1], MESSAGE) for i in range(3))]
    done = ran(flows, classes=(3, ack_class, 5), latency_ps=20 * FULL_PS)
    alone = ran(flows[:1], latency_ps=20 * FULL_PS)
    late = (finish_ps(done)[0] - finish_ps(alone)[0]) / FULL_PS
    assert (late > 30) == waits
    assert waits or late <= 2


def test_classes_that_share_a_port_get_as_many_bytes_each() -> None:
    # Two flows in class 3 and one in class 4, which is done when two thirds are.
    flows = [Flow([2 * i, 20], MESSAGE, classes=(3 + (i == 2), 6, 5)) for i in range(3)]
    shared = finish_ps(ran(flows))[2] / FULL_PS
    assert 2 * 100 - 6 < shared < 2 * 100 + 16
    assert finish_ps(ran(flows, classes=(3, 6, 5)))[2] / FULL_PS > 290


def test_a_port_s_classes_have_their_own_weights_limits_and_lines() -> None:
    """Of two flows at each of two ports, one in class 3 and one in class 4. At the second port
    class 4 has a third of class 3's weight, holds 20 frames and is never marked."""
    line = EcnSpec.model_construct(kmin=FRAME, kmax=2 * FRAME, pmax=0.5)
    whole, none = (10**15,) * 8, (None,) * 8
    kinds = (
        ClassQueues(whole, none, (1,) * 8),
        ClassQueues(
            (*whole[:4], 20 * FRAME, *whole[5:]), (*none[:3], line, *none[4:]), (3,) * 4 + (1,) * 4
        ),
    )
    kind = np.zeros(24, np.int64)
    kind[22] = 1
    flows = [
        Flow([2 * number, 20 + number // 2 * 2], MESSAGE, classes=(3 + number % 2, 6, 5), retries=0)
        for number in range(4)
    ]
    done = ran(flows, replace(ENDLESS, kinds=kinds, kind=kind), timeout_ns=10**9)
    even, heavy = finish_ps(done)[0] / FULL_PS, finish_ps(done)[2] / FULL_PS
    assert 190 < even < 225
    assert 125 < heavy < 160
    assert done.drops[20] == done.marks[20] == 0
    assert done.drops[22] > 0
    assert done.marks[22] > 0
    assert done.marked.tolist() == [0, 0, done.marks[22], 0]


def test_room_for_packets_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    flows = [Flow([2 * number, 20, 22], MESSAGE) for number in range(4)]
    roomy = ran(flows)
    monkeypatch.setattr(build, "FIRST_PACKETS", 1)
    assert finish_ps(ran(flows)) == finish_ps(roomy)


def known_in_flight(flows: list[Flow], queues: Queues = ENDLESS) -> int:
    program, (wiring,), _, sending, queues = arranged(flows, queues)
    return run.queued_at_first(program, wiring, sending, queues)


@pytest.mark.parametrize("last", [1, 20, MESSAGE // 4096])
def test_packets_that_will_be_in_flight_are_counted_before_a_run(last: int) -> None:
    """At least those: the last flow has fewer packets, so that the others' NICs end together."""
    flows = [Flow([2 * number, 20, 22], MESSAGE, window=64) for number in range(3)]
    flows.append(Flow([6, 20, 22], last * 4096, window=64))
    expected, state, most = known_in_flight(flows), build.state_of(*arranged(flows)), 0
    loop.begin(state, np.zeros(0, np.int64))
    while loop.advance(state, 1, at.NEVER) != loop.DONE:
        most = max(most, len(state.packet) - state.counts.free_packets)
    windows = 3 * 64 + min(last, 64)
    assert windows - 64 - 1 <= expected <= most <= windows


def test_too_many_packets_in_flight_are_refused_before_a_run_where_they_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = [Flow([2 * number, 20, 22], MESSAGE) for number in range(4)]
    monkeypatch.setattr(run, "MOST_IN_FLIGHT", 100)
    program, wirings, _, sending, queues = arranged(flows)
    with pytest.raises(InputError, match="at first, 300 packets are in flight; at most 100 are"):
        run.check_packets(program, wirings, sending, queues)
    small = replace(ENDLESS, buffer_bytes=10 * FRAME)
    ran(flows, small)
    assert known_in_flight(flows, small) == 0, "what is dropped is in flight no more"


def test_more_packets_in_flight_than_there_is_room_for_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flows = [Flow([2 * number, 20, 22], MESSAGE, after=[0] * (number > 0)) for number in range(4)]
    assert known_in_flight(flows) == 0, "the others begin later"
    monkeypatch.setattr(build, "FIRST_PACKETS", 1)
    monkeypatch.setattr(run, "MOST_IN_FLIGHT", 16)
    with pytest.raises(InputError, match="packets are in flight; more are not simulated"):
        ran(flows)
