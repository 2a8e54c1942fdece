"""What failures over days or months cost jobs, as a document.

`outlook` makes a frozen `Outlook` from the histories of jobs that ran through a timeline;
`rocelab.base.documents.to_json` writes it as JSON.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from rocelab.labfile.base import SECOND
from rocelab.results.whatif import JobOutlook, Outlook
from rocelab.sim.events.event_spec import RestartSpec
from rocelab.sim.events.expectation import expected_cost
from rocelab.sim.events.longrun import JobHistory
from rocelab.sim.events.timeline import EventOutage

SCHEMA_VERSION = 2

ROUNDING = 1e-9
"""The share of a job's time below which a difference of sums of its parts is none."""


def outlook(
    lab: str,
    source: str,
    drawn: str,
    restart: RestartSpec,
    outages: Sequence[EventOutage],
    histories: Sequence[JobHistory],
    gpus: Mapping[str, int],
    iterations: Mapping[str, int],
    breaks_per_s: Mapping[str, float],
) -> Outlook:
    """The document of histories."""
    return Outlook(
        SCHEMA_VERSION,
        lab,
        source,
        drawn,
        {f"{key}_s": getattr(restart, key) / SECOND for key in type(restart).model_fields},
        tuple(outage.what for outage in outages),
        tuple(
            _job(
                history,
                gpus[history.job],
                iterations[history.job],
                expected_cost(breaks_per_s[history.job], restart).effective,
            )
            for history in histories
        ),
    )


def _job(history: JobHistory, gpus: int, iterations: int, expected: float) -> JobOutlook:
    ends = math.isfinite(history.jct_s)
    named_s = history.stalled_s + history.restarting_s + history.lost_work_s
    slowed_s = history.jct_s - history.healthy_s - named_s
    return JobOutlook(
        job=history.job,
        gpus=gpus,
        iterations=iterations,
        jct_s=history.jct_s if ends else None,
        healthy_s=history.healthy_s,
        stalled_s=history.stalled_s,
        slowed_s=slowed_s if ends and slowed_s > ROUNDING * history.jct_s else 0.0,
        lucky=history.lucky,
        restarts=history.restarts,
        restarting_s=history.restarting_s,
        lost_work_s=history.lost_work_s,
        effective=history.work_s / history.jct_s if ends and history.jct_s else 0.0,
        breaks=dict(history.breaks),
        expected=expected,
    )
