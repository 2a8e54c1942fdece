"""What failures over days or months cost jobs, as a document.

In: tolls of jobs that ran through a timeline. Out: a frozen `Outlook`, as JSON by
`rocelab.documents.to_json`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rocelab.results.whatif import JobOutlook, Outlook
from rocelab.sim.events.expectation import expected_cost
from rocelab.sim.events.longrun import JobToll
from rocelab.sim.events.spec import RestartSpec
from rocelab.sim.events.timeline import Outage
from rocelab.spec.base import SECOND

SCHEMA_VERSION = 1


def outlook(
    lab: str,
    source: str,
    drawn: str,
    restart: RestartSpec,
    outages: Sequence[Outage],
    tolls: Sequence[JobToll],
    gpus: Mapping[str, int],
    iterations: Mapping[str, int],
    breaks_per_s: Mapping[str, float],
) -> Outlook:
    """The document of tolls."""
    return Outlook(
        SCHEMA_VERSION,
        lab,
        source,
        drawn,
        {key: getattr(restart, key) / SECOND for key in type(restart).model_fields},
        tuple(outage.what for outage in outages),
        tuple(
            _job(
                toll,
                gpus[toll.job],
                iterations[toll.job],
                expected_cost(breaks_per_s[toll.job], restart).effective,
            )
            for toll in tolls
        ),
    )


def _job(toll: JobToll, gpus: int, iterations: int, expected: float) -> JobOutlook:
    ends = math.isfinite(toll.jct_s)
    named_s = toll.stalled_s + toll.restarting_s + toll.lost_work_s
    return JobOutlook(
        job=toll.job,
        gpus=gpus,
        iterations=iterations,
        jct_s=toll.jct_s if ends else None,
        healthy_s=toll.healthy_s,
        stalled_s=toll.stalled_s,
        slowed_s=toll.jct_s - toll.healthy_s - named_s if ends else 0.0,
        restarts=toll.restarts,
        restarting_s=toll.restarting_s,
        lost_work_s=toll.lost_work_s,
        effective=toll.work_s / toll.jct_s if ends and toll.jct_s else 0.0,
        breaks=dict(toll.breaks),
        expected=expected,
    )
