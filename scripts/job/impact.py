"""What a failure in the middle of a job cost its iteration.

In: when each iteration of a job began and ended, and when something broke. Out: an `Impact`, the
link-failure test of the IETF's draft on benchmarks of AI fabrics
(draft-calabria-bmwg-ai-fabric-training-bench): the overhead of the iteration that was hit, and
whether it stayed within the 99th percentile of the iterations before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scripts.drill.result import Event
from traffic.jobresult import JobResult

FEWEST = 5
"""Undisturbed iterations without which there is no steady state to compare with."""


@dataclass(frozen=True, slots=True)
class Impact:
    """The iteration that was under way, or next, when the first fault began.

    iteration: its number, 0 the first, warm-up included. failed_ns: how long it took;
    steady_ns and steady_p99_ns: the median and 99th percentile of the `steady` measured iterations
    before it, all in the lab's clock. overhead: failed over steady, less 1. zero_impact: it took no
    longer than the 99th percentile.
    """

    iteration: int
    failed_ns: int
    steady: int
    steady_ns: float
    steady_p99_ns: float
    overhead: float
    zero_impact: bool


def impact_of(job: JobResult, events: tuple[Event, ...]) -> Impact | None:
    """The impact of the first event that begins a fault; `events` are in ns since the job's start.

    None without such an event or with fewer than FEWEST iterations before it, and where the job
    failed or was over by then.
    """
    begun = [event.t_ns for event in events if event.change == "begin"]
    if not begun or not job.ranks or job.errors:
        return None
    began_ns = np.min([rank.began_ns for rank in job.ranks], axis=0)
    ended_ns = np.max([rank.ended_ns for rank in job.ranks], axis=0)
    hit = int(np.searchsorted(ended_ns, begun[0], side="right"))
    took_ns = ended_ns - began_ns
    steady_ns = took_ns[job.plan.job.warmup_iterations : hit]
    if hit == len(ended_ns) or len(steady_ns) < FEWEST:
        return None
    failed_ns, median_ns = int(took_ns[hit]), float(np.median(steady_ns))
    p99_ns = float(np.percentile(steady_ns, 99))
    return Impact(
        iteration=hit,
        failed_ns=failed_ns,
        steady=len(steady_ns),
        steady_ns=median_ns,
        steady_p99_ns=p99_ns,
        overhead=failed_ns / median_ns - 1,
        zero_impact=failed_ns <= p99_ns,
    )
