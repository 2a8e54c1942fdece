"""Runs that this machine carried: made again where it did not, as drills do."""

from __future__ import annotations

from collections.abc import Callable

from scripts.drill.attempts import RETRIES, measure_valid
from scripts.job.document import JobReport


def carried(run: Callable[[], JobReport]) -> JobReport:
    """The last of the runs of a job; the first that was valid where one was."""
    return measure_valid(1, RETRIES, lambda _: run(), lambda report: not report.problems)[-1]
