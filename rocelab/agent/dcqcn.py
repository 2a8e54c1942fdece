"""DCQCN at an endpoint: when a receiver sends notifications, and how a sender's rate reacts.

A reaction point computes the permitted rate of one queue pair from a published parameter set, its
congestion notifications (CNPs) and the bytes it sent. Times are in the caller's clock; for the
lab's clock, pass dilated parameters. Pure: nothing here sleeps, sends or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Protocol

NEVER_NS = 1 << 62


@dataclass(frozen=True, slots=True)
class DcqcnParameters:
    """One parameter set; every field is a JSON value, so that it crosses the control channel."""

    name: str
    algorithm: Literal["paper", "sampled"]
    """The sender's reaction: `paper` cuts the rate at every CNP (SIGCOMM'15, section 3.2),
    `sampled` checks every `decrease_interval_ns` whether a CNP came (NIC firmware, and `rdma-hw.cc`
    of the HPCC ns-3)."""

    g: float
    """Weight of the newest observation in alpha."""

    initial_alpha: float
    alpha_interval_ns: int
    """`paper`: alpha decays after this long without a CNP; `sampled`: time between updates."""

    increase_interval_ns: int
    byte_counter_bytes: int | None
    """Bytes sent between two increases, in addition to the timer; None for the timer alone."""

    fast_recovery_rounds: int
    additive_increase_bps: float
    hyper_increase_bps: float
    min_rate_bps: float
    decrease_interval_ns: int
    """`sampled`: time between two checks for a CNP; 0 for `paper`."""

    clamp_target_rate: bool
    """Whether every cut sets the target to the rate before it, or only a cut after an increase."""

    cnp_interval_ns: int
    """Minimum time between two CNPs of one queue pair; 0: a CNP for every marked packet."""

    def dilated(self, dilation: float) -> DcqcnParameters:
        """The same behaviour on a clock that runs `dilation` times slower; bytes do not change."""
        return replace(
            self,
            alpha_interval_ns=round(self.alpha_interval_ns * dilation),
            increase_interval_ns=round(self.increase_interval_ns * dilation),
            decrease_interval_ns=round(self.decrease_interval_ns * dilation),
            cnp_interval_ns=round(self.cnp_interval_ns * dilation),
            additive_increase_bps=self.additive_increase_bps / dilation,
            hyper_increase_bps=self.hyper_increase_bps / dilation,
            min_rate_bps=self.min_rate_bps / dilation,
        )


class ReactionPoint(Protocol):
    """The rate limiter of one queue pair at its sender.

    Times are nanoseconds of one clock and never go back. A flow starts at line rate, and no timer
    runs before its first CNP.
    """

    rate_bps: float
    target_bps: float
    alpha: float

    def advance(self, now_ns: int) -> None:
        """Process every timer that expired up to `now_ns`. Costs almost nothing if none did."""

    def on_cnp(self, now_ns: int) -> None:
        """A CNP arrived."""

    def on_sent(self, size_bytes: int, now_ns: int) -> None:
        """`size_bytes` left, at the current rate."""


def reaction_point(parameters: DcqcnParameters, line_rate_bps: float) -> ReactionPoint:
    """A fresh reaction point; `line_rate_bps` is in the clock of `parameters`."""
    if parameters.algorithm == "paper":
        return PaperReactionPoint(parameters, line_rate_bps)
    return SampledReactionPoint(parameters, line_rate_bps)


class _RateLimiter:
    """The common part of both algorithms: their state, and the move half way to a target."""

    __slots__ = (
        "_alpha_due_ns",
        "_due_ns",
        "_floor_bps",
        "_increase_due_ns",
        "_line_bps",
        "_set",
        "_timer_rounds",
        "alpha",
        "rate_bps",
        "target_bps",
    )

    def __init__(self, parameters: DcqcnParameters, line_rate_bps: float) -> None:
        self._set = parameters
        self._line_bps = float(line_rate_bps)
        self._floor_bps = min(float(parameters.min_rate_bps), self._line_bps)
        self.rate_bps = self.target_bps = self._line_bps
        self.alpha = parameters.initial_alpha
        self._timer_rounds = 0
        self._alpha_due_ns = self._increase_due_ns = self._due_ns = NEVER_NS

    def _cut(self, now_ns: int) -> None:
        self.rate_bps = max(self._floor_bps, self.rate_bps * (1 - self.alpha / 2))
        self._timer_rounds = 0
        self._increase_due_ns = now_ns + self._set.increase_interval_ns

    def _run_increase_timer(self, now_ns: int) -> None:
        expired, self._increase_due_ns = _expired(
            self._increase_due_ns, self._set.increase_interval_ns, now_ns
        )
        while expired and self.rate_bps < self._line_bps:
            self._timer_round()
            expired -= 1
        self._timer_rounds += expired

    def _timer_round(self) -> None:
        raise NotImplementedError

    def _increase(self, step_bps: float) -> None:
        self.target_bps = min(self._line_bps, self.target_bps + step_bps)
        self.rate_bps = (self.rate_bps + self.target_bps) / 2
        # Halving alone never reaches the target; reaching it ends the loop over a long idle time.
        if self._line_bps - self.rate_bps < 1e-6 * self._line_bps:
            self.rate_bps = self.target_bps = self._line_bps


class PaperReactionPoint(_RateLimiter):
    """The reaction point of SIGCOMM'15, section 3.2, with QCN's timer and byte counter.

    On a CNP: target = rate, rate *= 1 - alpha/2, alpha = (1-g) alpha + g, and both counters start
    again. Each expiry of timer or byte counter counts a round and then moves the rate half way to
    the target, which it first raises by nothing (all rounds below F: fast recovery), by R_HAI times
    the rounds that both counters are past F (hyper increase), or by R_AI (additive increase).
    """

    __slots__ = ("_byte_rounds", "_bytes_left")

    def __init__(self, parameters: DcqcnParameters, line_rate_bps: float) -> None:
        super().__init__(parameters, line_rate_bps)
        self._byte_rounds = 0
        self._bytes_left = NEVER_NS

    def advance(self, now_ns: int) -> None:
        if now_ns < self._due_ns:
            return
        # Only a cut reads alpha, and none happens here: the order of the two timers does not
        # matter.
        expired, self._alpha_due_ns = _expired(
            self._alpha_due_ns, self._set.alpha_interval_ns, now_ns
        )
        self.alpha *= (1 - self._set.g) ** expired
        self._run_increase_timer(now_ns)
        self._due_ns = min(self._alpha_due_ns, self._increase_due_ns)

    def on_cnp(self, now_ns: int) -> None:
        self.advance(now_ns)
        self.target_bps = self.rate_bps
        self._cut(now_ns)
        self.alpha = (1 - self._set.g) * self.alpha + self._set.g
        self._byte_rounds = 0
        self._bytes_left = self._set.byte_counter_bytes or NEVER_NS
        self._alpha_due_ns = now_ns + self._set.alpha_interval_ns
        self._due_ns = min(self._alpha_due_ns, self._increase_due_ns)

    def on_sent(self, size_bytes: int, now_ns: int) -> None:
        self._bytes_left -= size_bytes
        if self._bytes_left > 0:
            return
        self.advance(now_ns)
        while self._bytes_left <= 0:
            self._bytes_left += self._set.byte_counter_bytes or NEVER_NS
            self._byte_rounds += 1
            self._increase(self._step_bps())

    def _timer_round(self) -> None:
        self._timer_rounds += 1
        self._increase(self._step_bps())

    def _step_bps(self) -> float:
        fast = self._set.fast_recovery_rounds
        if max(self._timer_rounds, self._byte_rounds) < fast:
            return 0.0
        past = min(self._timer_rounds, self._byte_rounds) - fast
        return past * self._set.hyper_increase_bps if past > 0 else self._set.additive_increase_bps


class SampledReactionPoint(_RateLimiter):
    """The reaction point of NIC firmware, as in `rdma-hw.cc` of the HPCC ns-3 (`*Mlx`).

    The first CNP sets alpha and starts two clocks. Each alpha interval, alpha moves by g towards 1
    if a CNP came since the last, else towards 0. Each decrease interval, if a CNP came since the
    last, the rate is cut by alpha/2 and the increase timer starts again; the rate before the cut
    becomes the target if the timer had expired in between, or always if `clamp_target_rate` is set.
    Expiries of the increase timer are F rounds of fast recovery, one additive increase, then hyper
    ones.
    """

    __slots__ = ("_cnp_since_alpha", "_cut_due_ns", "_first_cnp_ns")

    def __init__(self, parameters: DcqcnParameters, line_rate_bps: float) -> None:
        super().__init__(parameters, line_rate_bps)
        self._cnp_since_alpha = False
        self._first_cnp_ns = self._cut_due_ns = NEVER_NS

    def advance(self, now_ns: int) -> None:
        if now_ns < self._due_ns:
            return
        if self._cut_due_ns <= now_ns:
            # At one instant: alpha, then an increase, then the cut, as the simulator orders them.
            cut_ns, self._cut_due_ns = self._cut_due_ns, NEVER_NS
            self._update_alpha(cut_ns)
            self._run_increase_timer(cut_ns)
            if self._set.clamp_target_rate or self._timer_rounds:
                self.target_bps = self.rate_bps
            self._cut(cut_ns)
        self._update_alpha(now_ns)
        self._run_increase_timer(now_ns)
        self._due_ns = min(self._alpha_due_ns, self._increase_due_ns, self._cut_due_ns)

    def on_cnp(self, now_ns: int) -> None:
        self.advance(now_ns)
        if self._first_cnp_ns == NEVER_NS:
            self._first_cnp_ns = now_ns
            self._alpha_due_ns = now_ns + self._set.alpha_interval_ns
        else:
            self._cnp_since_alpha = True
        if self._cut_due_ns == NEVER_NS:
            # Checks that find no CNP change nothing: only the time of the next one is kept.
            interval_ns = self._set.decrease_interval_ns
            self._cut_due_ns = now_ns + interval_ns - (now_ns - self._first_cnp_ns) % interval_ns
        self._due_ns = min(self._alpha_due_ns, self._increase_due_ns, self._cut_due_ns)

    def on_sent(self, size_bytes: int, now_ns: int) -> None:
        """Does nothing: this algorithm has no byte counter."""

    def _update_alpha(self, now_ns: int) -> None:
        expired, self._alpha_due_ns = _expired(
            self._alpha_due_ns, self._set.alpha_interval_ns, now_ns
        )
        if expired and self._cnp_since_alpha:
            self._cnp_since_alpha = False
            self.alpha = (1 - self._set.g) * self.alpha + self._set.g
            expired -= 1
        self.alpha *= (1 - self._set.g) ** expired

    def _timer_round(self) -> None:
        past = self._timer_rounds - self._set.fast_recovery_rounds
        self._timer_rounds += 1
        if past < 0:
            self._increase(0.0)
        elif past == 0:
            self._increase(self._set.additive_increase_bps)
        else:
            self._increase(self._set.hyper_increase_bps)


def _expired(due_ns: int, interval_ns: int, now_ns: int) -> tuple[int, int]:
    """How often a timer due at `due_ns` expired up to `now_ns`, and when it is due next."""
    if now_ns < due_ns:
        return 0, due_ns
    times = (now_ns - due_ns) // interval_ns + 1
    return times, due_ns + times * interval_ns


class NotificationPoint:
    """The receiver's side: decides which marked packets get a CNP.

    The paper's receiver also sends a CNP at the end of an interval with a mark; this one sends it
    with the next marked packet, which under congestion comes within a packet time.
    """

    __slots__ = ("_interval_ns", "_next_ns")

    def __init__(self, cnp_interval_ns: int) -> None:
        self._interval_ns = cnp_interval_ns
        self._next_ns: dict[int, int] = {}

    def should_notify(self, qp: int, now_ns: int) -> bool:
        """Whether a CE-marked packet of queue pair `qp`, arrived at `now_ns`, gets a CNP."""
        if now_ns < self._next_ns.get(qp, now_ns):
            return False
        self._next_ns[qp] = now_ns + self._interval_ns
        return True
