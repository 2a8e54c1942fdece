"""A job with one thing wrong, and whether a diagnosis of its document names that."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from rocelab import Diagnosis, JobReport, RunningLab
from rocelab.results.diagnosis import Cause, CauseVerdict


@dataclass(frozen=True, slots=True)
class Trial:
    """A job with one thing wrong. expected: a server, the links of which one must be named, or
    whose victim it is. problems: why it was not what was to be tried."""

    injected: Cause
    expected: tuple[str, ...]
    report: JobReport
    problems: tuple[str, ...] = ()

    @classmethod
    def of_fault(cls, injected: Cause, expected: tuple[str, ...], report: JobReport) -> Trial:
        """A trial whose job had a fault, which may have found all packets sent if it came after the
        last iteration had begun."""
        problems = tuple(
            f"the last iteration had begun before the {begun.title}"
            for begun in report.events[:1]
            if begun.t_ns + begun.took_ns >= last_began_ns(report)
        )
        return cls(injected, expected, report, problems)


Run = Callable[[RunningLab, random.Random], Trial]


def last_began_ns(report: JobReport) -> float:
    """When the first rank began its last iteration, in ns of the lab since the job's start; inf for
    a job without recorded steps, which did not end."""
    return math.inf if report.steps is None else min(report.steps.began_ns[-1])


def names(verdict: CauseVerdict, trial: Trial) -> bool:
    """Whether a verdict is the fault that was injected, and names where."""
    links = (f"{link.link} towards {link.receiver}" for link in verdict.links)
    named = {verdict.server or "", *links}
    if verdict.cause is Cause.VICTIM:
        named = {verdict.subject.partition(", at ")[0]}
    located = not trial.expected or bool(named & set(trial.expected))
    return verdict.cause is trial.injected and located


def outcome(trial: Trial, diagnosis: Diagnosis) -> str:
    """The diagnosis in a word or two."""
    if trial.problems:
        return "not tried"
    if names(diagnosis.verdict, trial):
        return diagnosis.verdict.cause.value
    if diagnosis.verdict.cause is Cause.NONE and any(
        names(other, trial) for other in diagnosis.others
    ):
        return "seen, cost nothing"
    wrong_place = diagnosis.verdict.cause is trial.injected
    return f"{diagnosis.verdict.cause} elsewhere" if wrong_place else diagnosis.verdict.cause.value
