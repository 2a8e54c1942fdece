"""The functions of `paced`, for the packet engine."""

from __future__ import annotations

import numpy as np

from lab_pacing import PacedSpec  # type: ignore[import-not-found]
from rocelab.base.arrays import Floats
from rocelab.sim.packets.compiling import compiled

STATE_CELLS, RULE_CELLS = 1, 2
ALLOWED_BPS, CNP_PS = 0, 1


def rule_of(chosen: PacedSpec, line_bps: float) -> list[float]:
    return [line_bps / chosen.part, 0.0]


@compiled
def begin(state: Floats, rule: Floats) -> None:
    """Nothing is remembered."""


@compiled
def rate_bps(state: Floats, rule: Floats, now: float) -> float:
    return float(rule[ALLOWED_BPS])


@compiled
def next_rise(state: Floats, rule: Floats) -> float:
    return float(np.inf)


@compiled
def on_sent(state: Floats, rule: Floats, size_bytes: int, now: float) -> None:
    """Bytes are not counted."""


@compiled
def on_cnp(state: Floats, rule: Floats, now: float) -> None:
    """Marks change nothing."""
