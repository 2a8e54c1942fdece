"""What a failure cost the iteration it hit, on numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from scripts.drill.result import Event
from scripts.job.impact import FEWEST, impact_of
from tests.unit.job_sample import MS, allreduce
from tests.unit.job_sample import result as job_result
from traffic.jobresult import JobResult


def job(took_ms: list[int]) -> JobResult:
    """A job whose iterations follow each other without a pause, and end at all ranks at once."""
    sample = job_result(allreduce(iterations=len(took_ms), warmup_iterations=0))
    ended = np.cumsum(took_ms) * MS
    began = np.concatenate(([0], ended[:-1]))
    ranks = tuple(replace(rank, began_ns=began, ended_ns=ended) for rank in sample.ranks)
    return replace(sample, ranks=ranks)


def fault(at_ms: int, change: str = "begin") -> Event:
    return Event(at_ms * MS, "carrier-down", change, "rtsw1:ctsw1")  # type: ignore[arg-type]


def test_the_overhead_is_that_of_the_iteration_under_way() -> None:
    impact = impact_of(job([10, 10, 10, 11, 10, 30, 10]), (fault(60),))
    assert impact is not None
    assert (impact.iteration, impact.failed_ns, impact.steady) == (5, 30 * MS, 5)
    assert impact.overhead == pytest.approx(2.0)
    assert not impact.zero_impact


def test_an_iteration_within_the_99th_percentile_is_zero_impact() -> None:
    impact = impact_of(job([10, 12, 10, 10, 10, 10, 11]), (fault(65),))
    assert impact is not None
    assert impact.zero_impact
    assert impact.overhead == pytest.approx(0.1)


def test_the_end_of_a_fault_is_no_failure() -> None:
    assert impact_of(job([10] * 10), (fault(55, "end"),)) is None


def test_too_few_iterations_before_the_fault_are_no_steady_state() -> None:
    assert impact_of(job([10] * 10), (fault(10 * FEWEST - 1),)) is None
    assert impact_of(job([10] * 10), (fault(10 * FEWEST + 1),)) is not None


def test_a_fault_after_the_job_has_no_impact() -> None:
    assert impact_of(job([10] * 10), (fault(101),)) is None
