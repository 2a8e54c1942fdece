"""What failures cost in the long run, in closed form: a month is too long to simulate.

From how often a job breaks, how it restarts and which failures only slow it down follow the share
of time in which it makes progress and what the rest is lost to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.labfile.base import SECOND
from rocelab.sim.events.event_spec import RestartSpec


@dataclass(frozen=True, slots=True)
class Slowdown:
    """A kind of failure that does not break a job: its rate and duration, the stall at its onset,
    and the factor by which iterations take longer meanwhile (>= 1)."""

    what: str
    per_s: float
    lasts_s: float
    stall_s: float = 0.0
    factor: float = 1.0

    @property
    def lost_share(self) -> float:
        """The lost share of all time, to first order: such failures are too rare to overlap."""
        slow_s = max(0.0, self.lasts_s - self.stall_s)
        return self.per_s * (self.stall_s + slow_s * (1 - 1 / self.factor))


@dataclass(frozen=True, slots=True)
class ExpectedCost:
    """Shares of all time."""

    effective: float
    """Progress at full speed."""
    checkpoints: float
    """Writing them."""
    restarts: float
    """Repeated work and restarting."""
    slowed: float
    """Stalls and longer iterations."""
    breaks_per_day: float
    best_interval_s: float
    """Young's interval between checkpoints."""


def expected_cost(
    breaks_per_s: float, restart: RestartSpec, slowdowns: Sequence[Slowdown] = ()
) -> ExpectedCost:
    """The share of time in which a job makes progress.

    Where breaks come at a constant rate 1/M, work of tau between checkpoints of delta, and restarts
    of R, which can break too, take M e^(R/M) (e^((tau + delta)/M) - 1) on average (Daly 2006, "A
    higher order estimate of the optimum checkpoint interval for restart dumps"); to first order
    1/effective = 1 + delta/tau + (tau/2 + R)/M. The best interval is sqrt(2 delta M) (Young 1974).
    Raises ValueError for a negative rate.
    """
    if breaks_per_s < 0:
        raise ValueError("a rate is not negative")
    tau_s = restart.checkpoint_every / SECOND
    delta_s = restart.checkpoint_takes / SECOND
    cycle_s = tau_s + delta_s
    if breaks_per_s:
        redo = math.exp(_bounded(restart.restart_takes / SECOND * breaks_per_s))
        with_breaks_s = redo * math.expm1(_bounded(cycle_s * breaks_per_s)) / breaks_per_s
    else:
        with_breaks_s = cycle_s
    slowed = min(1.0, sum(slowdown.lost_share for slowdown in slowdowns))
    running = tau_s / with_breaks_s
    return ExpectedCost(
        effective=running * (1 - slowed),
        checkpoints=delta_s / with_breaks_s,
        restarts=1 - cycle_s / with_breaks_s,
        slowed=running * slowed,
        breaks_per_day=breaks_per_s * 86_400,
        best_interval_s=math.sqrt(2 * delta_s / breaks_per_s) if breaks_per_s else math.inf,
    )


def _bounded(exponent: float) -> float:
    """The exponent, bounded so that the result fits a float."""
    return min(exponent, 300.0)
