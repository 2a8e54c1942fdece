"""The numerical model of DCQCN: its predictions, and their agreement with endpoints' reaction
points."""

from __future__ import annotations

import heapq
import random

import numpy as np
import pytest

from rocelab.agent.dcqcn import NotificationPoint, reaction_point
from rocelab.base.errors import InputError
from rocelab.jobs.dcqcn_model import Bottleneck, ModelRun, simulate, step_for, time_to_fairness
from rocelab.jobs.dcqcn_profiles import PROFILES, parameters

G = 10**9
US = 10**3
MS = 10**6

PAPER_PORT = Bottleneck(
    capacity_bps=40 * G,
    buffer_bytes=12 * 10**6,
    kmin_bytes=5_000,
    kmax_bytes=200_000,
    pmax=0.01,
    feedback_ns=10 * US,
    packet_bytes=1024,
)
"""The thresholds of SIGCOMM'15, section 5, at its line rate."""

PORT_400G = Bottleneck(
    capacity_bps=400 * G,
    buffer_bytes=32 * 10**6,
    kmin_bytes=800_000,
    kmax_bytes=3_200_000,
    pmax=0.2,
    feedback_ns=10 * US,
    packet_bytes=4096,
)


def paper_run(starts_ns: list[int], duration_ns: int, seed: int | None) -> ModelRun:
    return simulate(
        parameters("sigcomm15", 40 * G), PAPER_PORT, starts_ns, duration_ns, 40 * G, seed=seed
    )


@pytest.fixture(scope="module")
def late_starter() -> ModelRun:
    return paper_run([0, 30 * MS], 140 * MS, seed=1)


def test_the_marking_line_rises_from_kmin_to_pmax_at_kmax_and_is_one_above() -> None:
    depths = (0, 800_000, 2_000_000, 3_200_000, 3_200_001)
    assert [PORT_400G.marking_probability(q) for q in depths] == [0, 0, 0.1, 0.2, 1]


def test_one_flow_alone_is_never_marked_and_keeps_line_rate() -> None:
    run = paper_run([0], 5 * MS, seed=1)
    assert run.cnps_ns[0].size == 0
    assert run.rates_bps[0, 1:] == pytest.approx(np.full(run.times_ns.size - 1, 40e9))
    assert run.queue_bytes.max() == 0


@pytest.mark.long
def test_two_flows_share_the_bottleneck_equally() -> None:
    run = paper_run([0, 0], 120 * MS, seed=1)
    settled = run.rates_bps[:, run.times_ns > 50 * MS].mean(axis=1)
    assert settled == pytest.approx([20e9, 20e9], rel=0.10)


@pytest.mark.long
def test_a_late_starter_reaches_ten_percent_of_the_fair_share(late_starter: ModelRun) -> None:
    took_ns = time_to_fairness(late_starter.times_ns, late_starter.rates_bps, 30 * MS)
    assert took_ns is not None
    assert 1 * MS < took_ns < 100 * MS


def test_the_flow_before_the_late_starter_has_the_link_alone(late_starter: ModelRun) -> None:
    before = (late_starter.times_ns > 1 * MS) & (late_starter.times_ns <= 30 * MS)
    assert np.all(late_starter.rates_bps[1, before] == 0)
    assert late_starter.rates_bps[0, before].mean() == pytest.approx(40e9)


def test_the_queue_stays_bounded_once_the_first_burst_is_gone(late_starter: ModelRun) -> None:
    settled = late_starter.times_ns > 40 * MS
    assert late_starter.queue_bytes[settled].max() < PAPER_PORT.kmax_bytes
    assert late_starter.dropped_bytes == 0
    used = late_starter.rates_bps[:, settled].sum(axis=0).mean()
    assert used == pytest.approx(40e9, rel=0.03)


def test_a_full_buffer_drops_and_stays_full_no_further() -> None:
    run = simulate(parameters("hpcc-dcqcn", 400 * G), PORT_400G, [0] * 64, 5 * MS, 400 * G, seed=1)
    assert run.dropped_bytes > 0
    assert run.queue_bytes.max() == PORT_400G.buffer_bytes


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (paper_run([0, 0], 5 * MS, seed) for seed in (1, 1, 2))
    assert np.array_equal(first.rates_bps, again.rates_bps)
    assert not np.array_equal(first.rates_bps, other.rates_bps)


def test_without_a_seed_equal_flows_move_as_one() -> None:
    run = paper_run([0, 0, 0], 20 * MS, seed=None)
    assert run.cnps_ns[0].size > 0
    assert np.array_equal(run.rates_bps[0], run.rates_bps[1])
    assert np.array_equal(run.rates_bps[0], run.rates_bps[2])


def test_cnps_of_a_flow_keep_the_receivers_interval(late_starter: ModelRun) -> None:
    for arrivals in late_starter.cnps_ns:
        # Arrivals are seen at the end of a step, so two may come a step closer.
        assert np.diff(arrivals).min() >= 50 * US - late_starter.step_ns


def test_no_cnp_is_back_before_the_round_trip() -> None:
    run = paper_run([0, 0], 2 * MS, seed=1)
    assert min(arrivals[0] for arrivals in run.cnps_ns) > PAPER_PORT.feedback_ns


@pytest.mark.long
@pytest.mark.parametrize("profile", PROFILES)
def test_reaction_points_given_the_models_cnps_have_the_models_rates(profile: str) -> None:
    line_bps = 40 * G
    set_ = parameters(profile, line_bps)
    run = simulate(set_, PAPER_PORT, [0, 0, 0], 10 * MS, line_bps, sample_ns=1, seed=3)
    for flow, arrivals in enumerate(run.cnps_ns):
        assert arrivals.size > 5
        cnps = set(arrivals.tolist())
        point = reaction_point(set_, line_bps)
        rates = run.rates_bps[flow]
        result = []
        for now_ns, sent_at in zip(run.times_ns.tolist()[:-1], rates.tolist(), strict=False):
            point.advance(now_ns)
            point.on_sent(round(sent_at * run.step_ns / 8e9), now_ns)
            if now_ns in cnps:
                point.on_cnp(now_ns)
            result.append(point.rate_bps)
        # The reaction point takes the last millionth below line rate for line rate.
        np.testing.assert_allclose(result, rates[1:], rtol=2e-6)


def packet_by_packet(
    profile: str, port: Bottleneck, flows: int, duration_ns: int, seed: int
) -> tuple[list[float], float, int]:
    """Endpoints' own code, every packet an event: bytes/s per flow, mean queue, CNPs."""
    set_ = parameters(profile, int(port.capacity_bps))
    points = [reaction_point(set_, port.capacity_bps) for _ in range(flows)]
    receiver, chance = NotificationPoint(set_.cnp_interval_ns), random.Random(seed)
    packet_bits = port.packet_bytes * 8
    events: list[tuple[float, int, str]] = [(float(flow), flow, "send") for flow in range(flows)]
    free_ns = queue_ns = last_ns = 0.0
    sent, cnps = [0] * flows, 0
    while events[0][0] < duration_ns:
        now_ns, flow, what = heapq.heappop(events)
        if what == "cnp":
            points[flow].on_cnp(int(now_ns))
            cnps += 1
            continue
        queue_ns += max(0.0, free_ns - now_ns) * (now_ns - last_ns)
        last_ns = now_ns
        waiting = max(0.0, free_ns - now_ns) * port.capacity_bps / 8e9
        free_ns = max(free_ns, now_ns) + packet_bits * 1e9 / port.capacity_bps
        marked = chance.random() < port.marking_probability(waiting)
        if marked and receiver.should_notify(flow, int(free_ns)):
            heapq.heappush(events, (free_ns + port.feedback_ns, flow, "cnp"))
        points[flow].advance(int(now_ns))
        points[flow].on_sent(port.packet_bytes, int(now_ns))
        sent[flow] += port.packet_bytes
        gap_ns = packet_bits * 1e9 / points[flow].rate_bps
        heapq.heappush(events, (now_ns + gap_ns, flow, "send"))
    mean_queue = queue_ns / last_ns * port.capacity_bps / 8e9
    return [size * 8e9 / duration_ns for size in sent], mean_queue, cnps


@pytest.mark.long
@pytest.mark.parametrize("profile", ["sigcomm15", "hpcc-dcqcn"])
def test_the_model_predicts_what_endpoints_do_packet_by_packet(profile: str) -> None:
    flows, duration_ns = 4, 20 * MS
    port = PAPER_PORT
    run = simulate(parameters(profile, 40 * G), port, [0] * flows, duration_ns, 40 * G, seed=5)
    rates, mean_queue, cnps = packet_by_packet(profile, port, flows, duration_ns, seed=5)
    assert sum(rates) == pytest.approx(run.rates_bps.mean(axis=1).sum(), rel=0.05)
    assert mean_queue == pytest.approx(run.queue_bytes.mean(), rel=0.25)
    if profile == "sigcomm15":  # without a CNP interval the model counts one per step at most
        assert cnps == pytest.approx(sum(map(len, run.cnps_ns)), rel=0.25)


def test_a_step_is_within_every_timer_and_the_feedback_or_a_packet() -> None:
    assert step_for(parameters("sigcomm15", 40 * G), PAPER_PORT) == 2500
    assert step_for(parameters("hpcc-dcqcn", 400 * G), PORT_400G) == 1000
    slow = Bottleneck(10**9, 10**6, 1000, 2000, 0.1, 10 * US, 4096)
    assert step_for(parameters("sigcomm15", 10**9), slow) == 32768
    assert step_for(parameters("hpcc-dcqcn", 10**9), slow) == 1000


@pytest.mark.parametrize(("starts", "duration_ns"), [([], 10 * MS), ([0], 10 * US)])
def test_nothing_to_model_is_refused(starts: list[int], duration_ns: int) -> None:
    with pytest.raises(InputError, match="nothing to model"):
        paper_run(starts, duration_ns, seed=1)


def steady(*rates: float) -> np.ndarray:
    return np.repeat(np.array(rates)[:, None], 400, axis=1)


TIMES = np.arange(1, 401) * 100 * US
"""40 ms in samples of 0.1 ms."""


def test_equal_flows_are_fair_from_the_first_sample() -> None:
    assert time_to_fairness(TIMES, steady(5e9, 5e9), from_ns=0) == 100 * US


def test_flows_that_never_come_within_tolerance_are_never_fair() -> None:
    assert time_to_fairness(TIMES, steady(6e9, 4e9), from_ns=0) is None
    assert time_to_fairness(TIMES, steady(6e9, 4e9), from_ns=0, tolerance=0.21) is not None


def test_fairness_is_when_the_mean_over_the_window_came_within_tolerance_to_stay() -> None:
    rates = steady(5e9, 5e9)
    rates[0, :200], rates[1, :200] = 9e9, 1e9
    # 4/5 of the share off while unequal samples fill the window: 1/8 of it is the 10%.
    took = time_to_fairness(TIMES, rates, from_ns=10 * MS, window_ns=8 * MS)
    assert took == 10 * MS + 7 * MS
    assert time_to_fairness(TIMES, rates, from_ns=20 * MS, window_ns=8 * MS) == 100 * US


def test_a_flow_that_falls_away_at_the_end_was_not_fair_to_stay() -> None:
    rates = steady(5e9, 5e9)
    rates[0, -30:] = 1e9
    assert time_to_fairness(TIMES, rates, from_ns=0, window_ns=5 * MS) is None


def test_fairness_shorter_than_a_window_does_not_count() -> None:
    rates = steady(5e9, 5e9)
    assert time_to_fairness(TIMES, rates, from_ns=36 * MS, window_ns=5 * MS) is None
    assert time_to_fairness(TIMES, rates, from_ns=40 * MS) is None
