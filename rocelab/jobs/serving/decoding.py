"""When tokens of answers appear: continuous batching in the replicas that decode.

Between two changes of its batch a replica makes equal steps that only grow with its cache, so that
each change is one computation, however many tokens are between.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Floats, Ints
from rocelab.jobs.serving.requests import Requests
from rocelab.jobs.serving.times import DecodeTimes


@dataclass(frozen=True, eq=False)
class Decoded:
    """Of each request, N, inf for never: when its decoding begins, its first token and its last."""

    begin_s: Floats
    first_s: Floats
    end_s: Floats


@dataclass(frozen=True, eq=False)
class DecodeStalls:
    """When a replica decodes nothing, since it prefills: intervals in order, none in another."""

    begin_s: Floats
    end_s: Floats

    def _points(self) -> tuple[Floats, Floats]:
        """Times, and how long the replica could have decoded until then."""
        stalled = np.cumsum(self.end_s - self.begin_s)
        before = stalled - (self.end_s - self.begin_s)
        times = np.stack((self.begin_s, self.end_s), axis=1).reshape(-1)
        decoded = times - np.stack((before, stalled), axis=1).reshape(-1)
        far = 1e12
        whole = float(stalled[-1]) if len(stalled) else 0.0
        return np.append(times, far + whole), np.append(decoded, far)

    def without(self, time_s: Floats) -> Floats:
        """How long the replica could have decoded until each time."""
        times, decoded = self._points()
        before: Floats = np.interp(time_s, np.append(0.0, times), np.append(0.0, decoded))
        return before

    def within(self, decoded_s: Floats) -> Floats:
        """The reverse."""
        times, decoded = self._points()
        after: Floats = np.interp(decoded_s, np.append(0.0, decoded), np.append(0.0, times))
        return after


def assigned(requests: Requests, ready_s: Floats, replicas: int, token_s: float) -> Ints:
    """The decoding replica of each request, chosen when its prompt is computed: that which has the
    fewest tokens of prompts and whole answers, if a token of an answer takes `token_s`."""
    chosen = np.zeros(len(requests), np.int32)
    left = np.zeros(replicas)
    ends: list[tuple[float, int, int]] = []
    for number in np.argsort(ready_s, kind="stable").tolist():
        now = float(ready_s[number])
        while ends and ends[0][0] <= now:
            _, replica, tokens = heapq.heappop(ends)
            left[replica] -= tokens
        replica = int(left.argmin())
        tokens = int(requests.prompt[number] + requests.answer[number])
        left[replica] += tokens
        end_s = now + float(requests.answer[number]) * token_s
        heapq.heappush(ends, (end_s, replica, tokens))
        chosen[number] = replica
    return chosen


def decode(
    requests: Requests,
    ready_s: Floats,
    replica: Ints,
    times: DecodeTimes,
    stalls: dict[int, DecodeStalls] | None = None,
) -> Decoded:
    """The answers. ready_s: when the cache of each request is there, inf for never. stalls: of
    replicas that also prefill."""
    count = len(requests)
    result = np.full((3, count), np.inf)
    order = np.lexsort((ready_s, replica))
    order = order[np.isfinite(ready_s[order])]
    bounds = np.searchsorted(replica[order], np.arange(int(replica.max(initial=0)) + 2))
    for number in range(len(bounds) - 1):
        rows = order[bounds[number] : bounds[number + 1]]
        if not len(rows):
            continue
        stall = None if stalls is None else stalls.get(number)
        ready = ready_s[rows] if stall is None else stall.without(ready_s[rows])
        served = _served(
            ready.tolist(), requests.prompt[rows].tolist(), requests.answer[rows].tolist(), times
        )
        result[:, rows] = served if stall is None else stall.within(served)
    if stalls is not None:
        # A request joins behind the prefill that a replica is in.
        result[0] = np.maximum(result[0], ready_s)
    return Decoded(*result)


def _served(ready: list[float], prompt: list[int], answer: list[int], times: DecodeTimes) -> Floats:
    """One replica's requests, by readiness: begins, first tokens and ends, 3 x n."""
    spec = times.spec
    most, room = spec.batch_requests, spec.cache_tokens
    begins, firsts, ends = np.full((3, len(ready)), np.inf)
    now, iteration, known, held, at = 0.0, 0, 0, 0, 0
    active: list[tuple[int, int]] = []
    while at < len(ready) or active:
        joined: list[int] = []
        while at < len(ready) and len(active) < most:
            if ready[at] > now:
                if active:
                    break
                now = ready[at]
            whole = prompt[at] + answer[at]
            if room is not None and held + whole > room and active:
                break
            heapq.heappush(active, (iteration + answer[at], at))
            begins[at] = now
            joined.append(at)
            known += prompt[at]
            held += whole
            at += 1
        requests = len(active)
        step_s, more_s = times.pace(requests, known)
        if joined:
            firsts[joined] = now + step_s
        steps = active[0][0] - iteration
        if not more_s:
            steps = int(min(steps, times.hidden_steps(requests, known)))
        growth = more_s * requests
        if at < len(ready) and requests < most and ready[at] > now:
            steps = min(steps, _steps_until(ready[at] - now, step_s, growth))
        now += steps * step_s + growth * steps * (steps - 1) / 2
        iteration += steps
        known += requests * steps
        while active and active[0][0] == iteration:
            _, done = heapq.heappop(active)
            ends[done] = now
            known -= prompt[done] + answer[done]
            held -= prompt[done] + answer[done]
    return np.stack((begins, firsts, ends))


def _steps_until(gap_s: float, step_s: float, growth_s: float) -> int:
    """Iterations until one ends not before `gap_s`, each longer than the last by `growth_s`."""
    if growth_s <= 0:
        return max(1, math.ceil(gap_s / step_s))
    linear = step_s - growth_s / 2
    steps = (-linear + math.sqrt(linear * linear + 2 * growth_s * gap_s)) / growth_s
    return max(1, math.ceil(steps))
