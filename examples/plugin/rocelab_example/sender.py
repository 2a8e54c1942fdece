"""The functions of `aimd`, which the packet engine compiles. Times are picoseconds."""

from __future__ import annotations

from rocelab.base.arrays import Floats
from rocelab.sim.packets.compiling import compiled
from rocelab_example.congestion import AimdSpec

RATE_BPS, RISE_PS = range(2)  # cells of a queue pair's state
STATE_CELLS = 2
LINE_BPS, STEP_BPS, INTERVAL_PS, CNP_PS = range(4)  # cells of a job's rule
RULE_CELLS = 4
NEVER = float("inf")


def rule_of(chosen: AimdSpec, line_bps: float) -> list[float]:
    interval_ps = 1e3 * chosen.interval
    return [line_bps, line_bps / chosen.steps, interval_ps, interval_ps]


@compiled
def begin(state: Floats, rule: Floats) -> None:
    """At the NIC's rate."""
    state[RATE_BPS] = rule[LINE_BPS]
    state[RISE_PS] = NEVER


@compiled
def rate_bps(state: Floats, rule: Floats, now: float) -> float:
    """The rate after all steps that are due."""
    if now >= state[RISE_PS]:
        steps = (now - state[RISE_PS]) // rule[INTERVAL_PS] + 1
        state[RATE_BPS] = min(rule[LINE_BPS], state[RATE_BPS] + steps * rule[STEP_BPS])
        state[RISE_PS] += steps * rule[INTERVAL_PS]
        if state[RATE_BPS] == rule[LINE_BPS]:
            state[RISE_PS] = NEVER
    return float(state[RATE_BPS])


@compiled
def next_rise(state: Floats, rule: Floats) -> float:
    return float(state[RISE_PS])


@compiled
def on_sent(state: Floats, rule: Floats, size_bytes: int, now: float) -> None:
    """Bytes are not counted."""


@compiled
def on_cnp(state: Floats, rule: Floats, now: float) -> None:
    """Half the rate, but at least a step."""
    state[RATE_BPS] = max(rule[STEP_BPS], rate_bps(state, rule, now) / 2)
    state[RISE_PS] = now + rule[INTERVAL_PS]
