"""The functions of the congestion control `raising`, for the packet engine."""

from __future__ import annotations

from rocelab.base.arrays import Floats
from rocelab.jobs.congestion import CongestionSpec
from rocelab.sim.packets.compiling import compiled

STATE_CELLS, RULE_CELLS = 1, 2
ZERO, CNP_PS = 0, 1


def rule_of(chosen: CongestionSpec, line_bps: float) -> list[float]:
    if not chosen.model_dump()["compiled"]:
        raise ValueError("no rule")
    return [0.0, 0.0]


@compiled
def begin(state: Floats, rule: Floats) -> None:
    """Nothing is remembered."""


@compiled
def rate_bps(state: Floats, rule: Floats, now: float) -> float:
    if rule[ZERO] == 0:
        raise ValueError("no rate")
    return float(rule[ZERO])


@compiled
def next_rise(state: Floats, rule: Floats) -> float:
    return 1e30


@compiled
def on_sent(state: Floats, rule: Floats, size_bytes: int, now: float) -> None:
    """Bytes are not counted."""


@compiled
def on_cnp(state: Floats, rule: Floats, now: float) -> None:
    """Marks change nothing."""
