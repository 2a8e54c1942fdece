"""The cost of a failure for its iteration, with numbers computed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rocelab.results.impact import FEWEST, ZERO_IMPACT, overhead_bounds
from rocelab.results.probes import Event
from rocelab.runs.jobfigures import impact_of
from rocelab.traffic.jobresult import JobResult
from tests.helpers.job_sample import MS, allreduce
from tests.helpers.job_sample import result as job_result


def job(took_ms: list[int]) -> JobResult:
    """A job whose iterations follow each other without a pause, and end at all ranks at once."""
    sample = job_result(allreduce(iterations=len(took_ms), warmup_iterations=0))
    ended = np.cumsum(took_ms) * MS
    began = np.concatenate(([0], ended[:-1]))
    ranks = tuple(replace(rank, began_ns=began, ended_ns=ended) for rank in sample.ranks)
    return replace(sample, ranks=ranks)


def fault(at_ms: int, change: str = "begin", took_ms: int = 0) -> Event:
    return Event(at_ms * MS, "carrier-down", change, "rtsw1:ctsw1", took_ns=took_ms * MS)  # type: ignore[arg-type]


def test_the_overhead_is_that_of_the_iteration_under_way() -> None:
    impact = impact_of(job([10, 10, 10, 11, 10, 30, 10]), (fault(60),))
    assert impact is not None
    assert (impact.iteration, impact.failed_ns, impact.steady) == (5, 30 * MS, 5)
    assert impact.overhead == pytest.approx(2.0)
    assert impact.zero_impact is False


def test_iterations_that_spread_too_far_do_not_tell_whether_there_was_an_impact() -> None:
    """20 % longer is within the 99th percentile of those before, and may be an impact of 50 %."""
    impact = impact_of(job([10, 14, 10, 10, 10, 10, 12]), (fault(65),))
    assert impact is not None
    assert impact.failed_ns <= impact.steady_p99_ns
    assert impact.overhead_low is not None and impact.overhead_high is not None
    assert impact.overhead_low < 0 < 0.5 < impact.overhead_high
    assert impact.zero_impact is None


def test_an_impact_is_none_where_even_its_upper_bound_is_small() -> None:
    impact = impact_of(job([1000, 1001, 999, 1000, 1002, 1010, 1000]), (fault(5500),))
    assert impact is not None
    assert impact.iteration == 5
    # By the 99th percentile this is an impact: it is slower than each of those before.
    assert impact.failed_ns > impact.steady_p99_ns
    assert impact.zero_impact is True


def test_a_few_iterations_that_hardly_differ_show_an_impact_above_the_limit() -> None:
    impact = impact_of(job([1000, 1001, 999, 1000, 1002, 1100, 1000]), (fault(5500),))
    assert impact is not None
    assert impact.overhead_low == pytest.approx(0.095, abs=0.003)
    assert impact.overhead_high == pytest.approx(0.104, abs=0.003)
    assert impact.zero_impact is False


STEADY = [1000, 1001, 999, 1000, 1002]


@pytest.mark.parametrize("hit", [[1000, 1900], [1900, 1000]])
def test_a_fault_that_may_have_hit_either_of_two_iterations_has_bounds_of_both(
    hit: list[int],
) -> None:
    at_ms = sum(STEADY) + hit[0] - 12
    known = impact_of(job(STEADY + hit), (fault(at_ms, took_ms=10),))
    assert known is not None
    assert (known.iteration, known.zero_impact) == (5, hit[0] == 1000)
    impact = impact_of(job(STEADY + hit), (fault(at_ms, took_ms=95),))
    assert impact is not None
    assert impact.iteration == 5 + hit.index(1900)
    assert impact.overhead == pytest.approx(0.9)
    assert impact.overhead_low is not None and impact.overhead_high is not None
    assert impact.overhead_low < 0 < 0.9 < impact.overhead_high
    assert impact.zero_impact is None


def test_a_fault_that_may_have_hit_either_of_two_undisturbed_iterations_had_no_impact() -> None:
    impact = impact_of(job([*STEADY, 1000, 1001]), (fault(5990, took_ms=95),))
    assert impact is not None
    assert impact.zero_impact is True


def test_a_fault_that_may_have_come_after_the_job_has_no_impact() -> None:
    assert impact_of(job([*STEADY, 1000]), (fault(5990, took_ms=5),)) is not None
    assert impact_of(job([*STEADY, 1000]), (fault(5990, took_ms=95),)) is None


def chance_of_none(n: int, spread: float, overhead: float, trials: int = 2000) -> float:
    """How often an iteration that is longer by `overhead` counts as without impact, after `n` with
    that spread."""
    draw = np.random.default_rng(n)
    count = 0
    for _ in range(trials):
        steady_ns = (1e9 * np.exp(draw.normal(0, spread, n))).astype(np.int64)
        failed_ns = int(1e9 * (1 + overhead) * np.exp(draw.normal(0, spread)))
        count += overhead_bounds(failed_ns, steady_ns)[1] <= ZERO_IMPACT
    return count / trials


@pytest.mark.parametrize("spread", [0.002, 0.01, 0.03, 0.1])
@pytest.mark.parametrize("n", [FEWEST, 20])
def test_an_impact_above_the_limit_is_hardly_ever_called_none(n: int, spread: float) -> None:
    """Whatever the noise: by the 99th percentile of five it was in half of the runs and more."""
    assert chance_of_none(n, spread, overhead=ZERO_IMPACT + 0.001) < 0.04


def test_what_had_no_impact_is_called_so_where_the_iterations_before_hardly_spread() -> None:
    assert chance_of_none(FEWEST, 0.005, overhead=0) > 0.9
    assert chance_of_none(20, 0.01, overhead=0) > 0.9
    assert chance_of_none(FEWEST, 0.05, overhead=0) < 0.2


def test_the_end_of_a_fault_is_no_failure() -> None:
    assert impact_of(job([10] * 10), (fault(55, "end"),)) is None


def test_too_few_iterations_before_the_fault_are_no_steady_state() -> None:
    assert impact_of(job([10] * 10), (fault(10 * FEWEST - 1),)) is None
    assert impact_of(job([10] * 10), (fault(10 * FEWEST + 1),)) is not None


def test_a_fault_after_the_job_has_no_impact() -> None:
    assert impact_of(job([10] * 10), (fault(101),)) is None
