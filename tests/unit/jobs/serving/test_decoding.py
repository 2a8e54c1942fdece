"""Continuous batching is what a loop over all iterations makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rocelab.base.arrays import Floats
from rocelab.jobs.serving.decoding import DecodeStalls, assigned, decode
from rocelab.jobs.serving.exchanges import ExchangeTimes
from rocelab.jobs.serving.requests import Requests, in_order
from rocelab.jobs.serving.serving_spec import RequestServingSpec
from rocelab.jobs.serving.times import DecodeTimes

SERVING: dict[str, Any] = {
    "model": "llama3-8b",
    "gpu": "h100",
    "prefill": 1,
    "decode": 1,
    "requests": {"prompt": 10, "output": 10, "rate": 1, "first": 1},
}


class Serving(RequestServingSpec):
    """A test needs no workload."""


def times(**keys: Any) -> DecodeTimes:
    spec = Serving.model_validate({**SERVING, **keys})
    return DecodeTimes(spec, ExchangeTimes(), 1)


def some(count: int, seed: int = 1, most: int = 60) -> tuple[Requests, Floats]:
    rng = np.random.default_rng(seed)
    prompt, answer = rng.integers(1, 5000, count), rng.integers(1, most, count)
    ready = np.sort(rng.random(count)) * 0.4
    requests = in_order(ready, prompt, answer, np.zeros(count, np.int64))
    return requests, ready


def by_iterations(requests: Requests, ready_s: Floats, pace: DecodeTimes) -> Floats:
    """Every iteration, one by one."""
    spec, room = pace.spec, pace.spec.cache_tokens
    result = np.full((3, len(requests)), np.inf)
    waiting = list(range(len(requests)))
    active: dict[int, int] = {}
    now = 0.0
    while waiting or active:
        if not active:
            now = max(now, ready_s[waiting[0]])
        while waiting and ready_s[waiting[0]] <= now and len(active) < spec.batch_requests:
            held = sum(requests.prompt[one] + requests.answer[one] for one in active)
            whole = requests.prompt[waiting[0]] + requests.answer[waiting[0]]
            if active and room is not None and held + whole > room:
                break
            active[waiting[0]] = 0
            result[0, waiting.pop(0)] = now
        known = sum(requests.prompt[one] + made for one, made in active.items())
        now += pace.pace(len(active), known)[0]
        for one in list(active):
            if not active[one]:
                result[1, one] = now
            active[one] += 1
            if active[one] == requests.answer[one]:
                result[2, one] = now
                del active[one]
    return result


@pytest.mark.parametrize("keys", [{}, {"batch_requests": 3}, {"memory": "100GB/s"}])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_batches_are_those_of_single_iterations(keys: dict[str, Any], seed: int) -> None:
    pace = times(**keys)
    requests, ready = some(40, seed)
    decoded = decode(requests, ready, np.zeros(40, np.int32), pace)
    expected = by_iterations(requests, ready, pace)
    assert np.stack((decoded.begin_s, decoded.first_s, decoded.end_s)) == pytest.approx(
        expected, rel=1e-9
    )


def test_a_full_cache_lets_requests_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Serving, "cache_tokens", 12_000)
    pace = times()
    requests, ready = some(40)
    decoded = decode(requests, ready, np.zeros(40, np.int32), pace)
    expected = by_iterations(requests, ready, pace)
    assert np.stack((decoded.begin_s, decoded.first_s, decoded.end_s)) == pytest.approx(
        expected, rel=1e-9
    )
    assert (decoded.begin_s > ready + 0.01).any()


def test_a_cache_that_never_comes_stops_its_request_alone() -> None:
    requests, ready = some(5)
    ready[2] = np.inf
    decoded = decode(requests, ready, np.zeros(5, np.int32), times())
    assert np.isinf(decoded.end_s).tolist() == [False, False, True, False, False]


def test_a_prefill_delays_tokens_by_its_time() -> None:
    requests = in_order(np.zeros(1), np.array([100]), np.array([50]), np.array([0]))
    free = decode(requests, np.zeros(1), np.zeros(1, np.int32), times())
    stall = DecodeStalls(np.array([0.01]), np.array([0.51]))
    held = decode(requests, np.zeros(1), np.zeros(1, np.int32), times(), {0: stall})
    assert held.first_s == pytest.approx(free.first_s)
    assert held.end_s == pytest.approx(free.end_s + 0.5)


def test_stalled_time_maps_to_itself_and_back() -> None:
    stall = DecodeStalls(np.array([1.0, 5.0]), np.array([2.0, 8.0]))
    assert stall.without(np.array([0.5, 1.5, 3.0, 9.0])).tolist() == [0.5, 1.0, 2.0, 5.0]
    assert stall.within(np.array([0.5, 2.0, 5.0])).tolist() == [0.5, 3.0, 9.0]


def test_requests_go_to_the_replica_with_the_least_to_do() -> None:
    requests = in_order(
        np.zeros(4), np.array([100, 10, 10, 10]), np.full(4, 5), np.zeros(4, np.int64)
    )
    assert assigned(requests, np.linspace(0, 3e-3, 4), 2, 1.0).tolist() == [0, 1, 1, 1]
    assert assigned(requests, np.linspace(0, 300, 4), 2, 1.0).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("over", [0.9, 1.02, 3.0])
def test_a_cache_grows_until_it_hides_no_exchange(over: float) -> None:
    """Beside an exchange, computation that is shorter at first is longer 20,000 tokens later."""
    shortest_s = times().pace(1, 0)[0]
    pace = DecodeTimes(times().spec, ExchangeTimes(latency_s=over * shortest_s, hides=True), 1)
    prompt, answer = np.full(2, 100), np.full(2, 20_000)
    requests = in_order(np.zeros(2), prompt, answer, np.zeros(2, np.int64))
    decoded = decode(requests, np.zeros(2), np.zeros(2, np.int32), pace)
    slow = by_iterations(requests, np.zeros(2), pace)
    assert np.stack((decoded.begin_s, decoded.first_s, decoded.end_s)) == pytest.approx(slow)
