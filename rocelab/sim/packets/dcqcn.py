"""DCQCN's sender, the packet engine's congestion control: a queue pair's permitted rate.

The functions of a congestion control (`rocelab.sim.packets.control`) are here those of
`rocelab.agent.dcqcn`, which says where the algorithms are from: `paper` and `sampled`. Times are in
picoseconds.
"""

from __future__ import annotations

import numpy as np

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.base.arrays import Floats
from rocelab.jobs.congestion import DcqcnSpec
from rocelab.jobs.dcqcn_profiles import parameters
from rocelab.sim.packets.compiling import part

RATE_BPS, TARGET_BPS, ALPHA, TIMER_ROUNDS, BYTE_ROUNDS, BYTES_LEFT = range(6)
ALPHA_DUE, INCREASE_DUE, CUT_DUE, DUE, FIRST_CNP, CNP_SINCE_ALPHA = range(6, 12)
STATE_CELLS = 12

SAMPLED, G, INITIAL_ALPHA, ALPHA_PS, INCREASE_PS, BYTE_COUNTER, FAST_ROUNDS = range(7)
ADDITIVE_BPS, HYPER_BPS, FLOOR_BPS, CUT_PS, CLAMP, LINE_BPS, CNP_PS = range(7, 14)
RULE_CELLS = 14

NEVER = np.inf


def rule_of(chosen: DcqcnSpec, line_bps: float) -> list[float]:
    """The row of a profile for NICs of a rate."""
    return rule_with(parameters(chosen.profile, round(line_bps)), line_bps)


def rule_with(p: DcqcnParameters, line_bps: float) -> list[float]:
    """The row of a parameter set."""
    return [
        float(p.algorithm == "sampled"),
        p.g,
        p.initial_alpha,
        1e3 * p.alpha_interval_ns,
        1e3 * p.increase_interval_ns,
        NEVER if p.byte_counter_bytes is None else p.byte_counter_bytes,
        p.fast_recovery_rounds,
        p.additive_increase_bps,
        p.hyper_increase_bps,
        min(p.min_rate_bps, line_bps),
        1e3 * p.decrease_interval_ns,
        float(p.clamp_target_rate),
        line_bps,
        1e3 * p.cnp_interval_ns,
    ]


@part
def begin(state: Floats, rule: Floats) -> None:
    """A flow begins at its NIC's rate; no timer runs before its first CNP."""
    state[RATE_BPS] = state[TARGET_BPS] = rule[LINE_BPS]
    state[ALPHA] = rule[INITIAL_ALPHA]
    state[ALPHA_DUE] = state[INCREASE_DUE] = state[CUT_DUE] = state[DUE] = NEVER
    state[BYTES_LEFT] = state[FIRST_CNP] = NEVER


@part
def rate_bps(state: Floats, rule: Floats, now: float) -> float:
    """The permitted rate, after all timers that ran out."""
    if now >= state[DUE]:
        if state[CUT_DUE] <= now:
            # At one instant: alpha, then an increase, then the cut.
            cut_ps = state[CUT_DUE]
            state[CUT_DUE] = NEVER
            _update_alpha(state, rule, cut_ps)
            _run_increases(state, rule, cut_ps)
            if rule[CLAMP] or state[TIMER_ROUNDS]:
                state[TARGET_BPS] = state[RATE_BPS]
            _cut(state, rule, cut_ps)
        _update_alpha(state, rule, now)
        _run_increases(state, rule, now)
        state[DUE] = min(state[ALPHA_DUE], state[INCREASE_DUE], state[CUT_DUE])
    return float(state[RATE_BPS])


@part
def next_rise(state: Floats, rule: Floats) -> float:
    """When the rate may rise next without a frame sent."""
    return float(state[INCREASE_DUE])


@part
def on_sent(state: Floats, rule: Floats, size_bytes: int, now: float) -> None:
    """A frame left: the byte counter."""
    state[BYTES_LEFT] -= size_bytes
    if state[BYTES_LEFT] > 0:
        return
    rate_bps(state, rule, now)
    while state[BYTES_LEFT] <= 0:
        state[BYTES_LEFT] += rule[BYTE_COUNTER]
        state[BYTE_ROUNDS] += 1
        _increase(state, rule, _paper_step(state, rule))


@part
def on_cnp(state: Floats, rule: Floats, now: float) -> None:
    """A congestion notification arrived."""
    rate_bps(state, rule, now)
    if rule[SAMPLED]:
        if state[FIRST_CNP] == NEVER:
            state[FIRST_CNP] = now
            state[ALPHA_DUE] = now + rule[ALPHA_PS]
        else:
            state[CNP_SINCE_ALPHA] = 1
        if state[CUT_DUE] == NEVER:
            # Checks that find no CNP change nothing: only the time of the next one is kept.
            state[CUT_DUE] = now + rule[CUT_PS] - (now - state[FIRST_CNP]) % rule[CUT_PS]
    else:
        state[TARGET_BPS] = state[RATE_BPS]
        _cut(state, rule, now)
        state[ALPHA] = (1 - rule[G]) * state[ALPHA] + rule[G]
        state[BYTE_ROUNDS] = 0
        state[BYTES_LEFT] = rule[BYTE_COUNTER]
        state[ALPHA_DUE] = now + rule[ALPHA_PS]
    state[DUE] = min(state[ALPHA_DUE], state[INCREASE_DUE], state[CUT_DUE])


@part
def _cut(state: Floats, rule: Floats, now: float) -> None:
    state[RATE_BPS] = max(rule[FLOOR_BPS], state[RATE_BPS] * (1 - state[ALPHA] / 2))
    state[TIMER_ROUNDS] = 0
    state[INCREASE_DUE] = now + rule[INCREASE_PS]


@part
def _update_alpha(state: Floats, rule: Floats, now: float) -> None:
    if now < state[ALPHA_DUE]:
        return
    expired = (now - state[ALPHA_DUE]) // rule[ALPHA_PS] + 1
    state[ALPHA_DUE] += expired * rule[ALPHA_PS]
    if state[CNP_SINCE_ALPHA]:
        state[CNP_SINCE_ALPHA] = 0
        state[ALPHA] = (1 - rule[G]) * state[ALPHA] + rule[G]
        expired -= 1
    state[ALPHA] *= (1 - rule[G]) ** expired


@part
def _run_increases(state: Floats, rule: Floats, now: float) -> None:
    if now < state[INCREASE_DUE]:
        return
    expired = (now - state[INCREASE_DUE]) // rule[INCREASE_PS] + 1
    state[INCREASE_DUE] += expired * rule[INCREASE_PS]
    while expired and state[RATE_BPS] < rule[LINE_BPS]:
        expired -= 1
        state[TIMER_ROUNDS] += 1
        step_bps = _sampled_step(state, rule) if rule[SAMPLED] else _paper_step(state, rule)
        _increase(state, rule, step_bps)
    state[TIMER_ROUNDS] += expired


@part
def _paper_step(state: Floats, rule: Floats) -> float:
    fast = rule[FAST_ROUNDS]
    if max(state[TIMER_ROUNDS], state[BYTE_ROUNDS]) < fast:
        return 0.0
    past = min(state[TIMER_ROUNDS], state[BYTE_ROUNDS]) - fast
    return float(past * rule[HYPER_BPS] if past > 0 else rule[ADDITIVE_BPS])


@part
def _sampled_step(state: Floats, rule: Floats) -> float:
    past = state[TIMER_ROUNDS] - 1 - rule[FAST_ROUNDS]
    if past < 0:
        return 0.0
    return float(rule[HYPER_BPS] if past > 0 else rule[ADDITIVE_BPS])


@part
def _increase(state: Floats, rule: Floats, step_bps: float) -> None:
    line_bps = rule[LINE_BPS]
    state[TARGET_BPS] = min(line_bps, state[TARGET_BPS] + step_bps)
    state[RATE_BPS] = (state[RATE_BPS] + state[TARGET_BPS]) / 2
    # Halving alone never reaches the target; reaching it ends the loop over a long idle time.
    if line_bps - state[RATE_BPS] < 1e-6 * line_bps:
        state[RATE_BPS] = state[TARGET_BPS] = line_bps
