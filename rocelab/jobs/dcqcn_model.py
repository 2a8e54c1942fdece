"""The prediction of DCQCN's equations for flows through one marking bottleneck.

`simulate` takes a parameter set, a bottleneck and the flows' start times, and returns every flow's
rate and the queue over time, in the modelled network's clock, for comparison with a lab's
measurement. It steps a fluid queue and the published state machines in fixed steps. It shares no
code with the reaction point of the endpoints, because each checks the other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rocelab.agent.dcqcn import DcqcnParameters
from rocelab.base.errors import InputError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

MARKED_FOR_CERTAIN = 50.0
"""Hazard of a packet that is marked with probability 1: exp(-50) is as good as zero."""


@dataclass(frozen=True, slots=True)
class Bottleneck:
    """The port that all flows share: capacity, buffer, and its WRED line.

    Packets are marked as they join the queue: with probability 0 below `kmin_bytes`, rising to
    `pmax` at `kmax_bytes`, and 1 above.
    """

    capacity_bps: float
    buffer_bytes: int
    kmin_bytes: int
    kmax_bytes: int
    pmax: float
    feedback_ns: int
    """The round trip without the queue, from the mark through the receiver to the sender and its
    new rate's arrival at the port."""

    packet_bytes: int

    def marking_probability(self, queue_bytes: float) -> float:
        """The probability for a packet that finds `queue_bytes` waiting (SIGCOMM'15, figure 5)."""
        if queue_bytes <= self.kmin_bytes:
            return 0.0
        if queue_bytes > self.kmax_bytes:
            return 1.0
        rise = (queue_bytes - self.kmin_bytes) / (self.kmax_bytes - self.kmin_bytes)
        return rise * self.pmax


@dataclass(frozen=True, slots=True, eq=False)
class ModelRun:
    """A finished run. Samples are equally spaced; a rate is the mean since the sample before."""

    step_ns: int
    times_ns: Integers
    """The end of each sample."""

    rates_bps: Floats
    """(flows, samples), as sent, 0 before a flow starts."""

    queue_bytes: Floats
    """Of each sample."""

    cnps_ns: tuple[Integers, ...]
    """One array per flow: arrivals at its sender, at most one a step."""

    dropped_bytes: float
    """What overflowed the buffer; it is not retransmitted."""


class _Senders:
    """The senders of all flows; one element per flow."""

    def __init__(self, parameters: DcqcnParameters, line_rate_bps: float, flows: int) -> None:
        self.p = parameters
        self.line = line_rate_bps
        self.rate = np.full(flows, line_rate_bps)
        self.target = self.rate.copy()
        self.alpha = np.full(flows, parameters.initial_alpha)


class _PaperSenders(_Senders):
    """SIGCOMM'15, section 3.2, for all flows at once; one element per flow."""

    def __init__(self, parameters: DcqcnParameters, line_rate_bps: float, flows: int) -> None:
        super().__init__(parameters, line_rate_bps, flows)
        self.timer = np.zeros(flows)
        self.bytes = np.zeros(flows)
        self.alpha_due = np.full(flows, np.inf)
        self.timer_due = np.full(flows, np.inf)
        self.bytes_left = np.full(flows, np.inf)

    def step(self, now_ns: int, cnp: Flags | None, sent_bytes: Floats) -> bool:
        """What happened up to `now_ns`; whether any rate may have changed."""
        p, changed = self.p, cnp is not None
        due = self.alpha_due <= now_ns
        if due.any():
            self.alpha[due] *= 1 - p.g
            self.alpha_due[due] += p.alpha_interval_ns
        due = self.timer_due <= now_ns
        if due.any():
            self.timer[due] += 1
            self.timer_due[due] += p.increase_interval_ns
            self._increase(due)
            changed = True
        self.bytes_left -= sent_bytes
        due = self.bytes_left <= 0
        if due.any():
            self.bytes[due] += 1
            self.bytes_left[due] += p.byte_counter_bytes or math.inf
            self._increase(due)
            changed = True
        if cnp is not None:
            self.target[cnp] = self.rate[cnp]
            self.rate[cnp] = np.maximum(
                min(p.min_rate_bps, self.line), self.rate[cnp] * (1 - self.alpha[cnp] / 2)
            )
            self.alpha[cnp] = (1 - p.g) * self.alpha[cnp] + p.g
            self.timer[cnp] = self.bytes[cnp] = 0
            self.bytes_left[cnp] = p.byte_counter_bytes or math.inf
            self.alpha_due[cnp] = now_ns + p.alpha_interval_ns
            self.timer_due[cnp] = now_ns + p.increase_interval_ns
        return changed

    def _increase(self, due: Flags) -> None:
        p = self.p
        fast = np.maximum(self.timer, self.bytes) < p.fast_recovery_rounds
        past = np.minimum(self.timer, self.bytes) - p.fast_recovery_rounds
        raised = np.where(past > 0, past * p.hyper_increase_bps, p.additive_increase_bps)
        target = np.minimum(self.line, self.target + np.where(fast, 0.0, raised))
        self.target[due] = target[due]
        self.rate[due] = (self.rate[due] + target[due]) / 2


class _SampledSenders(_Senders):
    """The algorithm of the HPCC ns-3's rdma-hw.cc, for all flows at once, tick by tick."""

    def __init__(self, parameters: DcqcnParameters, line_rate_bps: float, flows: int) -> None:
        super().__init__(parameters, line_rate_bps, flows)
        self.stage = np.zeros(flows)
        self.seen_by_alpha = np.zeros(flows, dtype=bool)
        self.seen_by_cut = np.zeros(flows, dtype=bool)
        self.alpha_due = np.full(flows, np.inf)
        self.look_due = np.full(flows, np.inf)
        self.timer_due = np.full(flows, np.inf)

    def step(self, now_ns: int, cnp: Flags | None, sent_bytes: Floats) -> bool:
        """What happened up to `now_ns`; whether any rate may have changed."""
        p, changed = self.p, False
        due = self.alpha_due <= now_ns
        if due.any():
            self.alpha[due] = (1 - p.g) * self.alpha[due] + p.g * self.seen_by_alpha[due]
            self.seen_by_alpha[due] = False
            self.alpha_due[due] += p.alpha_interval_ns
        due = self.timer_due <= now_ns
        if due.any():
            past = self.stage[due] - p.fast_recovery_rounds
            raised = np.where(past > 0, p.hyper_increase_bps, p.additive_increase_bps)
            raised[past < 0] = 0.0
            self.target[due] = np.minimum(self.line, self.target[due] + raised)
            self.rate[due] = (self.rate[due] + self.target[due]) / 2
            self.stage[due] += 1
            self.timer_due[due] += p.increase_interval_ns
            changed = True
        due = self.look_due <= now_ns
        if due.any():
            looked_ns = self.look_due.copy()
            self.look_due[due] += p.decrease_interval_ns
            cut = due & self.seen_by_cut
            if cut.any():
                clamped = cut & (p.clamp_target_rate | (self.stage > 0))
                self.target[clamped] = self.rate[clamped]
                self.rate[cut] = np.maximum(
                    min(p.min_rate_bps, self.line), self.rate[cut] * (1 - self.alpha[cut] / 2)
                )
                self.stage[cut] = 0
                self.seen_by_cut[cut] = False
                self.timer_due[cut] = looked_ns[cut] + p.increase_interval_ns
                changed = True
        if cnp is not None:
            first = cnp & np.isinf(self.alpha_due)
            self.seen_by_alpha |= cnp & ~first
            self.seen_by_cut |= cnp
            self.alpha_due[first] = now_ns + p.alpha_interval_ns
            self.look_due[first] = now_ns + p.decrease_interval_ns
        return changed


def step_for(parameters: DcqcnParameters, bottleneck: Bottleneck) -> int:
    """Nanoseconds of a step: within every timer, and a quarter of the feedback or one packet."""
    packet_ns = math.ceil(bottleneck.packet_bytes * 8e9 / bottleneck.capacity_bps)
    return min(
        parameters.alpha_interval_ns,
        parameters.increase_interval_ns,
        parameters.decrease_interval_ns or parameters.alpha_interval_ns,
        parameters.cnp_interval_ns or parameters.alpha_interval_ns,
        max(packet_ns, bottleneck.feedback_ns // 4),
    )


def simulate(
    parameters: DcqcnParameters,
    bottleneck: Bottleneck,
    starts_ns: Sequence[int],
    duration_ns: int,
    line_rate_bps: float,
    sample_ns: int = 100_000,
    seed: int | None = None,
) -> ModelRun:
    """Run flows that start at `starts_ns`, each at `line_rate_bps`, and never end.

    Marks are drawn with `seed`; without one each mark comes at its expected time, which is
    repeatable but keeps equal flows synchronised. A sample is the whole steps (`step_for`) that fit
    in `sample_ns`, at least one. Not modelled: packets, losses, windows, priority pauses. Raises
    InputError for no flows or a duration below a sample.
    """
    step_ns = step_for(parameters, bottleneck)
    per_sample = max(1, sample_ns // step_ns)
    samples = duration_ns // (per_sample * step_ns)
    if not starts_ns or samples < 1:
        raise InputError(
            f"nothing to model: {len(starts_ns)} flows for {duration_ns} ns",
            hint=f"give at least one flow and {per_sample * step_ns} ns",
        )
    flows = len(starts_ns)
    senders = (_PaperSenders if parameters.algorithm == "paper" else _SampledSenders)(
        parameters, line_rate_bps, flows
    )
    marks = _Marks(bottleneck, parameters.cnp_interval_ns, flows, seed)
    starts = np.asarray(starts_ns)
    waiting = sorted(set(starts_ns))
    rates = np.zeros(flows)
    total_bps = queue = dropped = 0.0
    drained = bottleneck.capacity_bps * step_ns / 8e9
    sampled_rates = np.zeros((flows, samples))
    sampled_queue = np.zeros(samples)
    cnps: list[tuple[int, Flags]] = []
    for sample in range(samples):
        sent = np.zeros(flows)
        for step in range(sample * per_sample + 1, (sample + 1) * per_sample + 1):
            now_ns = step * step_ns
            sent_bytes = rates * (step_ns / 8e9)
            sent += sent_bytes
            queue = max(0.0, queue + total_bps * step_ns / 8e9 - drained)
            if queue > bottleneck.buffer_bytes:
                dropped += queue - bottleneck.buffer_bytes
                queue = float(bottleneck.buffer_bytes)
            cnp = marks.arrived(now_ns)
            if cnp is not None:
                cnps.append((now_ns, cnp))
            changed = senders.step(now_ns, cnp, sent_bytes)
            if waiting and waiting[0] <= now_ns:
                waiting = [start for start in waiting if start > now_ns]
                changed = True
            if changed:
                rates = np.where(starts <= now_ns, senders.rate, 0.0)
                total_bps = float(rates.sum())
            marks.joined(now_ns, queue, rates * (step_ns / 8e9))
        sampled_rates[:, sample] = sent * (8e9 / (per_sample * step_ns))
        sampled_queue[sample] = queue
    return ModelRun(
        step_ns=step_ns,
        times_ns=np.arange(1, samples + 1) * per_sample * step_ns,
        rates_bps=sampled_rates,
        queue_bytes=sampled_queue,
        cnps_ns=tuple(
            np.array([at for at, flags in cnps if flags[flow]], dtype=np.int64)
            for flow in range(flows)
        ),
        dropped_bytes=dropped,
    )


class _Marks:
    """From the queue to CNPs at the senders: WRED, the receiver's interval, and the way back.

    A flow is marked when the hazard of its packets since the last mark, -ln(1 - p) each, reaches a
    threshold: a threshold drawn from Exp(1) equals a draw per packet; without a seed it is 1, the
    expectation.
    """

    def __init__(
        self, bottleneck: Bottleneck, cnp_interval_ns: int, flows: int, seed: int | None
    ) -> None:
        self._port = bottleneck
        self._interval_ns = cnp_interval_ns
        self._random = None if seed is None else np.random.default_rng(seed)
        self._hazard = np.zeros(flows)
        self._threshold = self._thresholds(flows)
        self._open_ns = np.full(flows, -np.inf)
        self._on_the_way: deque[tuple[float, Flags]] = deque()

    def _thresholds(self, count: int) -> Floats:
        return np.ones(count) if self._random is None else self._random.exponential(size=count)

    def joined(self, now_ns: int, queue_bytes: float, arrived_bytes: Floats) -> None:
        """`arrived_bytes` per flow join a queue of `queue_bytes`."""
        probability = self._port.marking_probability(queue_bytes)
        if probability == 0.0:
            return
        hazard = MARKED_FOR_CERTAIN if probability == 1.0 else -math.log1p(-probability)
        received_ns = now_ns + queue_bytes * 8e9 / self._port.capacity_bps
        answered = self._open_ns <= received_ns
        self._hazard += answered * arrived_bytes * (hazard / self._port.packet_bytes)
        marked = self._hazard >= self._threshold
        if marked.any():
            self._hazard[marked] = 0.0
            self._threshold[marked] = self._thresholds(int(marked.sum()))
            self._open_ns[marked] = received_ns + self._interval_ns
            self._on_the_way.append((received_ns + self._port.feedback_ns, marked))

    def arrived(self, now_ns: int) -> Flags | None:
        """Flags of the flows whose senders got a CNP since the last call; None for none."""
        flags: Flags | None = None
        while self._on_the_way and self._on_the_way[0][0] <= now_ns:
            _, marked = self._on_the_way.popleft()
            flags = marked if flags is None else flags | marked
        return flags


def time_to_fairness(
    times_ns: Integers,
    rates_bps: Floats,
    from_ns: int,
    tolerance: float = 0.10,
    window_ns: int = 10_000_000,
) -> int | None:
    """Nanoseconds from `from_ns` until every flow stays within `tolerance` of its fair share.

    `times_ns` (samples) are the ends of samples, `rates_bps` (flows, samples) the rates in them. A
    rate is taken as its mean over the last `window_ns`, or since `from_ns` if that is later; the
    fair share is the flows' mean at that time. They must stay so until the end, and for at least
    one window; else the result is None. (BMWG's DCQCN convergence test, AI fabric draft.)
    """
    late = times_ns > from_ns
    times, rates = times_ns[late], rates_bps[:, late]
    if times.size == 0:
        return None
    sums = np.concatenate([np.zeros((rates.shape[0], 1)), np.cumsum(rates, axis=1)], axis=1)
    last = np.arange(1, times.size + 1)
    first = np.minimum(np.searchsorted(times, times - window_ns, side="right"), last - 1)
    smoothed = (sums[:, last] - sums[:, first]) / (last - first)
    fair = smoothed.mean(axis=0)
    unfair = np.flatnonzero((np.abs(smoothed - fair) > tolerance * fair).any(axis=0))
    since = 0 if unfair.size == 0 else int(unfair[-1]) + 1
    if since == times.size or times[-1] - times[since] < window_ns:
        return None
    return int(times[since]) - from_ns
