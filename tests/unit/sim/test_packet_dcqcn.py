"""The packet engine's DCQCN: beside the endpoints' own code and the fluid model of one port."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq  # type: ignore[import-untyped]

from rocelab.agent.dcqcn import reaction_point
from rocelab.jobs.dcqcn_model import Bottleneck, simulate
from rocelab.jobs.dcqcn_profiles import PROFILES, parameters
from rocelab.sim.packets import control, dcqcn, loop
from rocelab.sim.packets import state as at
from rocelab.sim.packets.build import state_of
from rocelab.sim.packets.freelist import grown
from tests.helpers.long import mostly_long
from tests.unit.sim.packet_runs import (
    ACK_PS,
    ENDLESS,
    FRAME,
    FULL_PS,
    Flow,
    arranged,
    finish_ps,
    ran,
)

LINE_BPS = 100 * 10**9
LASTS_NS = 6_000_000


def rule(profile: str) -> list[float]:
    return control.marked("dcqcn", dcqcn.rule_with(parameters(profile, LINE_BPS), LINE_BPS))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("seed", mostly_long(range(3), [0]))
def test_a_rate_is_the_endpoint_s_after_any_events(profile: str, seed: int) -> None:
    """CNPs and frames at random times, dense and sparse, and long pauses."""
    random = np.random.default_rng(seed)
    theirs = reaction_point(parameters(profile, LINE_BPS), LINE_BPS)
    row, state = np.array(rule(profile)), np.zeros(dcqcn.STATE_CELLS)
    dcqcn.begin(state, row)
    now_ns, cuts = 0, 0
    for _ in range(4000):
        now_ns += int(
            random.choice([7, 900, 4000, 60_000, 3_000_000], p=[0.5, 0.3, 0.1, 0.08, 0.02])
        )
        event = random.random()
        if event < 0.3:
            theirs.on_cnp(now_ns)
            dcqcn.on_cnp(state, row, 1e3 * now_ns)
        elif event < 0.9:
            theirs.on_sent(1_000_000, now_ns)
            dcqcn.on_sent(state, row, 1_000_000, 1e3 * now_ns)
        theirs.advance(now_ns)
        rate_bps = dcqcn.rate_bps(state, row, 1e3 * now_ns)
        assert rate_bps == pytest.approx(theirs.rate_bps, rel=1e-12)
        assert state[dcqcn.TARGET_BPS] == pytest.approx(theirs.target_bps, rel=1e-12)
        assert state[dcqcn.ALPHA] == pytest.approx(theirs.alpha, rel=1e-9)
        cuts += rate_bps < LINE_BPS
    assert cuts > 1000


@pytest.mark.parametrize("profile", PROFILES)
def test_a_nic_slower_than_the_least_rate_is_never_slowed(profile: str) -> None:
    control = replace(parameters(profile, LINE_BPS), min_rate_bps=10**8)
    row, state = np.array(dcqcn.rule_with(control, 10**7)), np.zeros(dcqcn.STATE_CELLS)
    dcqcn.begin(state, row)
    for now_ps in (1e9, 2e9, 3e9):
        dcqcn.on_cnp(state, row, now_ps)
        assert dcqcn.rate_bps(state, row, now_ps + 5e8) == 10**7


def test_a_flow_that_no_mark_slows_sends_at_its_nic_s_rate() -> None:
    free, paced = (
        ran([Flow([0, 2], 500 * 4096, rule=control)]) for control in ((), rule("sigcomm15"))
    )
    assert paced.finish_s[0] == pytest.approx(free.finish_s[0], rel=1e-9)


def test_a_first_cnp_halves_the_rate() -> None:
    # Every packet is marked; the second CNP is due 50 us after the first, when all is over.
    packets, latency_ps = 70, 1000
    done = ran(
        [Flow([0, 20], packets * 4096, rule=rule("sigcomm15"), ecn=at.ALL_CE)],
        latency_ps=latency_ps,
    )
    assert done.cnps[0] == 1
    cnp_ps = 2 * (FULL_PS + latency_ps) + 2 * (98 * 80 + latency_ps)
    before = cnp_ps // FULL_PS + 1
    last_ps = (before - 1) * FULL_PS + (packets - before) * 2 * FULL_PS
    end_ps = last_ps + 2 * (FULL_PS + latency_ps) + 2 * (ACK_PS + latency_ps)
    assert finish_ps(done)[0] == pytest.approx(end_ps, abs=packets)


def test_a_receiver_sends_a_cnp_for_a_mark_at_most_once_in_its_interval() -> None:
    every = list(rule("sigcomm15"))
    every[control.CNP_PS] = 0
    every[dcqcn.FLOOR_BPS] = LINE_BPS
    some = list(every)
    some[control.CNP_PS] = 50e6
    counts = [
        ran([Flow([0, 2], 1000 * 4096, rule=control, ecn=at.ALL_CE)]).cnps[0]
        for control in (every, some)
    ]
    assert counts[0] == 1000
    assert counts[1] == pytest.approx(1000 * FULL_PS / 50e6, abs=1)


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_one_port_agrees_with_the_model_of_its_equations(profile: str) -> None:
    """Queue, packets and CNPs of four flows, as means of draws, beside those of the model."""
    kmin, kmax, pmax, latency_ps = 100 * FRAME, 400 * FRAME, 0.2, 1_000_000
    queues = replace(ENDLESS, kmin=kmin, kmax=kmax, pmax=pmax)
    flow = Flow([0, 20], 10**9, window=10**6, timeout_ns=10**9, rule=rule(profile))
    flows = [replace(flow, path=[2 * i, 20]) for i in range(4)]
    cnps, queue, carried = [], [], []
    for seed in range(3):
        run = state_of(*arranged(flows, replace(queues, seed=seed), latency_ps=latency_ps))
        loop.begin(run, np.zeros(0, np.int64))
        area, last_ps = 0, 0
        while last_ps < 1000 * LASTS_NS:
            depth = run.port.depth[20]
            if loop.advance(run, 20, at.NEVER) == loop.FULL:
                run = grown(run)
            area += depth * (run.counts.now_ps - last_ps)
            last_ps = run.counts.now_ps
        cnps.append(run.flow.cnps.sum())
        queue.append(area / last_ps)
        carried.append(run.flow.expected.sum())
    bottleneck = Bottleneck(
        capacity_bps=LINE_BPS,
        buffer_bytes=10**12,
        kmin_bytes=kmin,
        kmax_bytes=kmax,
        pmax=pmax,
        feedback_ns=4 * latency_ps // 1000 + 2 * 98 * 80 // 1000 + 2 * FULL_PS // 1000,
        packet_bytes=FRAME,
    )
    models = [
        simulate(parameters(profile, LINE_BPS), bottleneck, [0] * 4, LASTS_NS, LINE_BPS, seed=seed)
        for seed in range(2)
    ]
    model_queue = np.mean([model.queue_bytes.mean() for model in models])
    model_bps = np.mean([model.rates_bps.sum(axis=0).mean() for model in models])
    assert np.mean(queue) == pytest.approx(model_queue, rel=0.2)
    assert np.mean(carried) == pytest.approx(model_bps * LASTS_NS / 8e9 / (FRAME + 24), rel=0.05)
    if parameters(profile, LINE_BPS).cnp_interval_ns:
        # The model counts at most one of a flow in each of its steps.
        model_cnps = np.mean([sum(map(len, model.cnps_ns)) for model in models])
        assert np.mean(cnps) == pytest.approx(model_cnps, rel=0.2)


def fixed_point(flows: int, line_bps: int) -> float:
    """The marked share of packets at the fixed point of DCQCN's fluid model (Zhu et al., SIGCOMM
    2015, section 5): its equations with all derivatives 0 and an even share for each flow."""
    p, wire_bits = parameters("sigcomm15", line_bps), 8 * (FRAME + 24)
    rate, step = line_bps / flows / wire_bits, p.additive_increase_bps / wire_bits
    cnp_s, alpha_s = p.cnp_interval_ns / 1e9, p.alpha_interval_ns / 1e9
    in_timer, in_bytes = rate * p.increase_interval_ns / 1e9, p.byte_counter_bytes / FRAME
    fast = p.fast_recovery_rounds

    def surplus(share: float) -> float:
        free = 1 - share
        cut, alpha = 1 - free ** (cnp_s * rate), 1 - free ** (alpha_s * rate)
        by_bytes, by_timer = (share / (free**-factor - 1) for factor in (in_bytes, in_timer))
        raised = by_bytes * free ** (fast * in_bytes) + by_timer * free ** (fast * in_timer)
        return cut**2 * alpha - cnp_s**2 * step * rate * (by_bytes + by_timer) * raised

    return float(brentq(surplus, 1e-6, 0.2))


def fixed_point_of_whole_timers(flows: int, line_bps: int) -> float:
    """The same balance in whole events, which the fluid model spreads over time: a CNP comes after
    its interval and then with the first mark, timers begin anew with it, and rates change when they
    run out; the byte counter is too slow to matter."""
    p, wire_bits = parameters("sigcomm15", line_bps), 8 * (FRAME + 24)
    rate_bps = line_bps / flows
    cnp_s, alpha_s, timer_s = (
        interval_ns / 1e9
        for interval_ns in (p.cnp_interval_ns, p.alpha_interval_ns, p.increase_interval_ns)
    )
    after = p.fast_recovery_rounds + np.arange(1000)

    def surplus(share: float) -> float:
        marks_per_s = -math.log1p(-share) * rate_bps / wire_bits

        def without(seconds: np.ndarray) -> np.ndarray:
            """The chance that no CNP has come for so long."""
            return np.exp(-marks_per_s * (seconds - cnp_s))

        alpha = 1 / (1 + without(alpha_s * np.arange(1, 1000)).sum())
        rounds = np.arange(1, 1000)
        kept = 1 - (without(timer_s * rounds) * 0.5**rounds).sum()
        raised = (without(timer_s * after) * (1 - 0.5 ** (1 + np.arange(1000)))).sum()
        return float(rate_bps * alpha / 2 * kept - p.additive_increase_bps * raised)

    return float(brentq(surplus, 1e-6, 0.2))


@pytest.mark.parametrize(("flows", "line_bps"), [(2, 40e9), (4, 40e9), (8, 100e9), (12, 100e9)])
def test_marks_and_rates_settle_at_the_fixed_point(flows: int, line_bps: float) -> None:
    """More flows, or a lower line, let the queue swing, as the paper says of the model.

    The fluid model has a third fewer marks than the engine because it has no whole timers: with
    them the balance is the engine's but for 8%, as marks depend on a queue that is never still."""
    line = round(line_bps)
    fluid, expected = fixed_point(flows, line), fixed_point_of_whole_timers(flows, line)
    assert 1.3 < expected / fluid < 1.4
    row = control.marked("dcqcn", dcqcn.rule_with(parameters("sigcomm15", line), line))
    kmin = line // 2 * 10**-9 * FRAME
    queues = replace(ENDLESS, kmin=round(kmin), kmax=round(11 * kmin), pmax=0.05)
    endless = [
        Flow([2 * number, 200], 10**10, window=10**6, ack_every=64, timeout_ns=10**9, rule=row)
        for number in range(flows)
    ]
    run = state_of(*arranged(endless, queues, dict.fromkeys(range(202), line_bps)))
    loop.begin(run, np.zeros(0, np.int64))
    counts = []
    for until_ps in (80 * 10**9, 300 * 10**9):
        while (state := loop.advance(run, 10**5, until_ps)) != loop.DONE:
            run = grown(run) if state == loop.FULL else run
        counts.append((run.flow.expected.copy(), int(run.port.marks[200])))
    packets, marks = counts[1][0] - counts[0][0], counts[1][1] - counts[0][1]
    assert marks / packets.sum() == pytest.approx(expected, rel=0.08)
    share = 0.22 * line_bps / flows / (8 * (FRAME + 24))
    assert packets.tolist() == pytest.approx([share] * flows, rel=0.1)


def test_a_marked_flow_without_congestion_control_gets_no_cnp() -> None:
    done = ran([Flow([0, 2], 100 * 4096, ecn=at.ALL_CE)])
    assert (done.marked[0], done.cnps[0]) == (100, 0)
