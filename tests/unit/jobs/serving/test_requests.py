"""Requests that are drawn, chosen and rescaled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy import stats  # type: ignore[import-untyped]

from rocelab.base.errors import InputError
from rocelab.jobs.serving.request_spec import RequestsSpec
from rocelab.jobs.serving.requests import Requests

LEAST_P = 0.001
TRACE = "timestamp_s,isl,osl,reused_blocks\n" + "".join(
    f"{second},{1000 + second},{10 + second},1\n" for second in (0, 10, 40, 30, 20)
)


def drawn(seed: int = 1, **keys: Any) -> Requests:
    return RequestsSpec.model_validate({"prompt": 100, "output": 10, **keys}).requests(seed)


@pytest.fixture
def trace(tmp_path: Path) -> str:
    file = tmp_path / "trace.csv"
    file.write_text(TRACE)
    return str(file)


def of_trace(trace: str, **keys: Any) -> Requests:
    return RequestsSpec.model_validate({"trace": trace, **keys}).requests(1)


def test_poisson_arrivals_have_exponential_gaps_of_the_rate() -> None:
    requests = drawn(rate=50, duration="100s")
    gaps = np.diff(requests.arrival_s)
    assert stats.kstest(gaps * 50, "expon").pvalue > LEAST_P
    assert abs(len(requests) - 5000) < 3.3 * 5000**0.5
    assert requests.arrival_s[0] == 0


def test_bursty_arrivals_have_the_gaps_that_are_asked_for() -> None:
    gaps = np.diff(drawn(rate=50, first=40000, arrivals="gamma", cv=4).arrival_s)
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.1)
    assert gaps.std() / gaps.mean() == pytest.approx(4, rel=0.1)


def test_lengths_have_their_median_and_99th_percentile() -> None:
    prompt = drawn(rate=1, first=50000, prompt={"p50": 1469, "p99": 7436}).prompt
    assert np.percentile(prompt, [50, 99]) == pytest.approx([1469, 7436], rel=0.05)
    assert (drawn(rate=1, first=9).prompt == 100).all()


def test_a_seed_draws_the_same_requests_and_another_one_others() -> None:
    one, same, other = (drawn(seed, rate=5, first=20).arrival_s for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


def test_a_trace_is_sorted_by_time_and_says_so(trace: str) -> None:
    requests = of_trace(trace)
    assert requests.arrival_s.tolist() == [0, 10, 20, 30, 40]
    assert requests.prompt.tolist() == [1000, 1010, 1020, 1030, 1040]
    assert (requests.reused == 512).all()
    assert "sorted by time; what is reused is by the file's order" in requests.warnings[0]


def test_a_part_of_a_trace_is_chosen_by_time_and_number(trace: str) -> None:
    requests = of_trace(trace, after="10s", duration="20s")
    assert requests.prompt.tolist() == [1010, 1020]
    assert requests.arrival_s.tolist() == [0, 10]
    assert of_trace(trace, after="10s", first=3).prompt.tolist() == [1010, 1020, 1030]
    assert len(of_trace(trace, first=3)) == 3


def test_a_rate_stretches_gaps_and_keeps_their_shape(trace: str) -> None:
    requests = of_trace(trace, rate=2.5)
    assert requests.rate == pytest.approx(2.5)
    assert np.diff(requests.arrival_s) == pytest.approx([0.4] * 4)


def test_a_trace_without_times_needs_a_rate(tmp_path: Path) -> None:
    file = tmp_path / "lengths.csv"
    file.write_text("isl,osl\n5,6\n7,8\n")
    with pytest.raises(InputError, match="no column with times"):
        of_trace(str(file))
    requests = of_trace(str(file), rate=3)
    assert requests.prompt.tolist() == [5, 7] and requests.arrival_s[1] > 0


def test_requests_without_tokens_are_left_out_and_counted(tmp_path: Path) -> None:
    file = tmp_path / "failed.csv"
    file.write_text("timestamp_s,isl,osl\n0,5,0\n1,7,8\n2,0,8\n")
    requests = of_trace(str(file))
    assert requests.prompt.tolist() == [7]
    assert "2 requests" in requests.warnings[0]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, "expected a trace"),
        ({"trace": "x", "prompt": 5}, "its own lengths"),
        ({"prompt": 5, "output": 5}, "expected rate"),
        ({"prompt": 5, "output": 5, "rate": 1}, "expected duration or first"),
        ({"prompt": 5, "output": 5, "rate": 1, "first": 1, "duration": "1s"}, "duration or first"),
        ({"prompt": 5, "output": 5, "rate": 1, "first": 1, "cv": 2}, "gamma and cv"),
        ({"trace": "x", "arrivals": "gamma", "rate": 1}, "gamma and cv"),
        ({"prompt": 5, "output": 5, "rate": 1, "first": 1, "arrivals": "trace"}, "there is none"),
        ({"prompt": {"p50": 9, "p99": 5}, "output": 5, "rate": 1, "first": 1}, "below the median"),
    ],
)
def test_what_contradicts_itself_is_refused(keys: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        RequestsSpec.model_validate(keys)


def test_too_many_requests_are_refused_before_they_are_drawn() -> None:
    with pytest.raises(InputError, match="at most"):
        drawn(rate=1e6, duration="600s")


def test_the_last_request_has_a_gap_too(tmp_path: Path) -> None:
    """Two requests 1 s apart are 1 a second, not 2."""
    file = tmp_path / "two.csv"
    file.write_text("timestamp_s,isl,osl\n0,5,6\n1,7,8\n")
    assert of_trace(str(file)).rate == 1
    assert of_trace(str(file), first=1).rate is None


def test_gaps_far_below_a_nanosecond_are_no_rate() -> None:
    drawn = RequestsSpec.model_validate(
        {"rate": 1e6, "arrivals": "gamma", "cv": 100, "first": 2, "prompt": 1, "output": 1}
    ).requests(4)
    assert 0 <= drawn.lasts_s < 1e-9 and drawn.rate is None
