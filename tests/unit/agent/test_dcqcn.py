"""DCQCN's notification and reaction points against hand-computed examples and their limits."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocelab.agent.dcqcn import DcqcnParameters, NotificationPoint, ReactionPoint, reaction_point
from rocelab.base.errors import InputError
from rocelab.jobs.dcqcn_profiles import PROFILES, parameters

G = 10**9
US = 10**3
MB = 10**6

Event = tuple[str, int]
"""The kind of event, and either the nanoseconds before it or the bytes sent."""

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("cnp"), st.integers(0, 400 * US)),
        st.tuples(st.just("wait"), st.integers(0, 3000 * US)),
        st.tuples(st.just("sent"), st.integers(1, 25 * MB)),
    ),
    max_size=60,
)


def paper(line_bps: int = 40 * G) -> ReactionPoint:
    return reaction_point(parameters("sigcomm15", line_bps), line_bps)


def sampled(line_bps: int = 25 * G) -> ReactionPoint:
    return reaction_point(parameters("hpcc-dcqcn", line_bps), line_bps)


def play(
    point: ReactionPoint, events: list[Event], dilation: int = 1
) -> list[tuple[float, float, float]]:
    """(rate, target, alpha) after each event."""
    now_ns, seen = 0, []
    for what, amount in events:
        if what == "sent":
            point.on_sent(amount, now_ns)
        else:
            now_ns += amount * dilation
            point.advance(now_ns)
        if what == "cnp":
            point.on_cnp(now_ns)
        seen.append((point.rate_bps, point.target_bps, point.alpha))
    return seen


# The paper's algorithm.


def test_a_flow_starts_at_line_rate_and_stays_there_without_cnps() -> None:
    point = paper()
    point.on_sent(100 * MB, 10**6)
    point.advance(10**12)
    assert (point.rate_bps, point.target_bps, point.alpha) == (40e9, 40e9, 1.0)


def test_the_first_cnp_halves_the_rate_and_remembers_it_as_target() -> None:
    point = paper()
    point.on_cnp(1000)
    assert (point.rate_bps, point.target_bps) == (20e9, 40e9)
    assert point.alpha == 1.0  # (1 - 1/256) * 1 + 1/256


def test_alpha_decays_by_g_for_every_alpha_interval_without_a_cnp() -> None:
    point = paper()
    point.on_cnp(0)
    point.advance(55 * US - 1)
    assert point.alpha == 1.0
    point.advance(55 * US)
    assert point.alpha == 255 / 256
    point.advance(10 * 55 * US)
    assert point.alpha == pytest.approx((255 / 256) ** 10)


def test_a_cnp_cuts_by_half_of_the_alpha_before_it() -> None:
    point = paper()
    point.on_cnp(0)
    point.on_cnp(60 * US)  # one timer in between: rate (20 + 40)/2 = 30G, alpha 255/256
    assert point.target_bps == 30e9
    assert point.rate_bps == pytest.approx(30e9 * (1 - 255 / 512))
    assert point.alpha == pytest.approx(255 / 256 * 255 / 256 + 1 / 256)


def test_fast_recovery_halves_the_distance_then_the_target_rises_by_the_additive_step() -> None:
    point = paper()
    point.on_cnp(0)
    point.on_cnp(10 * US)
    seen = []
    for round_ in range(1, 7):
        point.advance(10 * US + round_ * 55 * US)
        seen.append((point.rate_bps, point.target_bps))
    assert seen[:4] == [(15e9, 20e9), (17.5e9, 20e9), (18.75e9, 20e9), (19.375e9, 20e9)]
    assert seen[4] == (19.7075e9, 20.04e9)
    assert seen[5] == pytest.approx((19.89375e9, 20.08e9))


def test_the_byte_counter_counts_rounds_beside_the_timer() -> None:
    point = paper()
    point.on_cnp(0)
    point.on_cnp(10 * US)
    point.on_sent(10 * MB - 1, 11 * US)
    assert point.rate_bps == 10e9
    point.on_sent(1, 12 * US)
    assert point.rate_bps == 15e9
    point.on_sent(30 * MB, 13 * US)
    assert point.rate_bps == 19.375e9
    point.advance(65 * US)  # the timer's first round: 4 by bytes, 1 by time is fast recovery
    assert (point.rate_bps, point.target_bps) == (19.6875e9, 20e9)


def test_hyper_increase_needs_both_counters_past_fast_recovery() -> None:
    point = paper()
    point.on_cnp(0)
    point.on_cnp(10 * US)
    point.advance(10 * US + 7 * 55 * US)
    targets = []
    for _ in range(7):
        point.on_sent(10 * MB, 400 * US)
        targets.append(point.target_bps)
    steps = [after - before for before, after in pairwise(targets)]
    assert targets[0] == pytest.approx(20e9 + 4 * 40e6)  # timer rounds 5, 6, 7, and this one
    assert steps == pytest.approx([40e6] * 4 + [200e6, 2 * 200e6])


def test_a_cnp_starts_both_counters_again() -> None:
    point = paper()
    point.on_cnp(0)
    point.on_sent(9 * MB, 1 * US)
    point.on_cnp(50 * US)
    assert point.rate_bps == 10e9
    point.on_sent(9 * MB, 51 * US)
    point.advance(104 * US)
    assert point.rate_bps == 10e9
    point.advance(105 * US)
    assert point.rate_bps == 15e9


# The sampled algorithm.


def test_the_sampled_cut_waits_for_the_end_of_the_decrease_interval() -> None:
    point = sampled()
    point.on_cnp(0)
    point.advance(4 * US - 1)
    assert point.rate_bps == 25e9
    point.advance(4 * US)
    alpha = (255 / 256) ** 4  # the first CNP sets alpha; the bit for alpha is clear
    assert point.alpha == pytest.approx(alpha)
    assert point.rate_bps == pytest.approx(25e9 * (1 - alpha / 2))


def test_many_cnps_in_one_interval_are_one_cut_and_one_step_of_alpha() -> None:
    one, many = sampled(), sampled()
    for point in (one, many):
        point.on_cnp(0)
        point.on_cnp(4200)
    for at in range(4300, 5000, 50):
        many.on_cnp(at)
    for point in (one, many):
        point.advance(8 * US)
    a4 = (255 / 256) ** 4
    a8 = (a4 * 255 / 256 + 1 / 256) * (255 / 256) ** 3
    assert one.rate_bps == pytest.approx(25e9 * (1 - a4 / 2) * (1 - a8 / 2))
    assert (many.rate_bps, many.alpha) == (one.rate_bps, one.alpha)


def test_looks_keep_to_the_grid_of_the_first_cnp() -> None:
    point = sampled()
    point.on_cnp(1 * US)
    point.advance(1000 * US)
    before = point.rate_bps
    point.on_cnp(1002 * US)
    point.advance(1005 * US - 1)
    assert point.rate_bps == before
    point.advance(1005 * US)
    assert point.rate_bps < before


def test_the_target_follows_the_rate_only_where_the_timer_expired_since_the_last_cut() -> None:
    point = sampled()
    point.on_cnp(0)
    point.on_cnp(5 * US)
    point.advance(8 * US)
    assert point.target_bps == 25e9
    point.advance(308 * US)
    recovered = point.rate_bps
    point.on_cnp(309 * US)
    point.advance(312 * US)
    assert point.target_bps == recovered < 25e9


def test_after_fast_recovery_comes_one_additive_step_then_hyper_ones() -> None:
    point = sampled()
    for at in (0, 309 * US):
        point.on_cnp(at)
    point.advance(312 * US)
    target = point.target_bps
    targets = []
    for round_ in range(1, 5):
        point.advance(312 * US + round_ * 300 * US)
        targets.append(point.target_bps - target)
    assert targets == pytest.approx([0, 5e6, 55e6, 105e6])


# Both.


@pytest.mark.parametrize("profile", PROFILES)
@given(events=EVENTS, line_bps=st.sampled_from([100 * 10**6, 25 * G, 400 * G]))
def test_the_rate_never_leaves_its_limits(profile: str, events: list[Event], line_bps: int) -> None:
    set_ = parameters(profile, line_bps)
    floor = min(set_.min_rate_bps, line_bps)
    for rate, target, alpha in play(reaction_point(set_, line_bps), events):
        assert floor <= rate <= target <= line_bps
        assert 0 <= alpha <= 1


@pytest.mark.parametrize("profile", PROFILES)
@given(events=EVENTS, power=st.integers(0, 20))
def test_a_dilated_machine_on_a_dilated_clock_has_exactly_the_rates_divided(
    profile: str, events: list[Event], power: int
) -> None:
    # Powers of two, since dividing by them does not round.
    dilation = 2**power
    set_ = parameters(profile, 400 * G)
    modelled = play(reaction_point(set_, 400 * G), events)
    lab = play(reaction_point(set_.dilated(dilation), 400 * G / dilation), events, dilation)
    assert [(r * dilation, t * dilation, a) for r, t, a in lab] == modelled


@pytest.mark.parametrize("profile", PROFILES)
@given(events=EVENTS, dilation=st.integers(1, 10**6))
def test_any_dilation_gives_the_rates_divided_up_to_rounding(
    profile: str, events: list[Event], dilation: int
) -> None:
    set_ = parameters(profile, 400 * G)
    modelled = play(reaction_point(set_, 400 * G), events)
    lab = play(reaction_point(set_.dilated(dilation), 400 * G / dilation), events, dilation)
    for (rate, target, alpha), expected in zip(lab, modelled, strict=True):
        # A rate a millionth below line rate may have been taken for it in one of the two.
        assert (rate * dilation, target * dilation, alpha) == pytest.approx(expected, rel=2e-6)


@pytest.mark.parametrize("profile", PROFILES)
@given(events=EVENTS, steps=st.integers(2, 40))
def test_advancing_often_or_once_is_the_same(profile: str, events: list[Event], steps: int) -> None:
    often: list[Event] = []
    for what, amount in events:
        if what == "sent":
            often.append((what, amount))
        else:
            part = amount // steps
            often += [("wait", part)] * steps + [(what, amount - part * steps)]
    set_ = parameters(profile, 40 * G)
    end_once = play(reaction_point(set_, 40 * G), events)[-1:]
    end_often = play(reaction_point(set_, 40 * G), often)[-1:]
    assert end_often == [pytest.approx(end) for end in end_once]


@pytest.mark.parametrize("profile", PROFILES)
def test_a_sender_left_alone_is_back_at_line_rate(profile: str) -> None:
    point = reaction_point(parameters(profile, 400 * G), 400 * G)
    for at in range(0, 5000 * US, 5 * US):
        point.on_cnp(at)
    assert point.rate_bps < 40 * G
    point.advance(3600 * G)
    assert point.rate_bps == point.target_bps == 400 * G
    assert point.alpha < 1e-9


@pytest.mark.parametrize("profile", PROFILES)
def test_parameters_cross_the_control_channel_as_json(profile: str) -> None:
    set_ = parameters(profile, 400 * G).dilated(1000.0)
    assert set_.name == profile
    assert DcqcnParameters(**json.loads(json.dumps(asdict(set_)))) == set_


def test_dilation_multiplies_times_divides_rates_and_leaves_bytes() -> None:
    set_ = parameters("sigcomm15", 40 * G).dilated(1000.0)
    assert (set_.alpha_interval_ns, set_.increase_interval_ns) == (55_000_000, 55_000_000)
    assert set_.cnp_interval_ns == 50_000_000
    assert (set_.additive_increase_bps, set_.min_rate_bps) == (40e3, 100e3)
    assert set_.byte_counter_bytes == 10 * MB


def test_the_simulators_increases_scale_with_the_line_rate_and_firmwares_do_not() -> None:
    assert parameters("hpcc-dcqcn", 400 * G).additive_increase_bps == 80e6
    assert parameters("hpcc-dcqcn", 400 * G).hyper_increase_bps == 800e6
    assert parameters("connectx4", 400 * G).additive_increase_bps == 5e6


def test_an_unknown_profile_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="unknown DCQCN profile 'timely'") as caught:
        parameters("timely", 400 * G)
    assert caught.value.hint is not None
    assert all(name in caught.value.hint for name in PROFILES)


def test_a_queue_pair_is_notified_at_most_once_an_interval() -> None:
    point = NotificationPoint(50 * US)
    answers = [point.should_notify(7, at) for at in (0, 1, 50 * US - 1, 50 * US, 60 * US, 200 * US)]
    assert answers == [True, False, False, True, False, True]


def test_queue_pairs_are_notified_apart() -> None:
    point = NotificationPoint(50 * US)
    assert [point.should_notify(qp, 10) for qp in (1, 2, 1, 2)] == [True, True, False, False]


def test_without_an_interval_every_mark_is_answered() -> None:
    point = NotificationPoint(0)
    assert all(point.should_notify(1, at) for at in (0, 0, 1))


@given(marks=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 60 * US)), max_size=80))
def test_cnps_of_a_queue_pair_are_never_closer_than_the_interval(
    marks: list[tuple[int, int]],
) -> None:
    point, now_ns, sent = NotificationPoint(50 * US), 0, dict[int, list[int]]()
    for qp, gap in marks:
        now_ns += gap
        if point.should_notify(qp, now_ns):
            sent.setdefault(qp, []).append(now_ns)
    for times in sent.values():
        assert all(b - a >= 50 * US for a, b in pairwise(times))


def test_the_module_needs_the_standard_library_only() -> None:
    code = (
        "import sys, rocelab.agent.dcqcn;"
        "print([m for m in sys.modules if m.split('.')[0] in ('numpy', 'pydantic', 'scapy')])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
