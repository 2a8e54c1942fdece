"""The line that a document has of a job."""

from __future__ import annotations

from rocelab.jobs.job_spec import SimulatedJob
from rocelab.report.jobs.text import job_text


def test_a_job_of_tcp_says_what_tcp_has() -> None:
    job = {
        "name": "save",
        "transport": {"kind": "tcp", "congestion_control": "reno"},
        "checkpoint": {"size": "1MB", "storage": ["sto*"]},
    }
    written = SimulatedJob.model_validate(job).model_dump(mode="json", exclude_none=True)
    assert job_text(written) == "checkpoint save; TCP (reno), DSCP 0"
