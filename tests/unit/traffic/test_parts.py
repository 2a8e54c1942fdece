"""The setup message of a server that only sends probes has every field that an agent reads."""

from __future__ import annotations

from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job
from rocelab.labfile.model import LabSpec
from rocelab.planning.build import plan
from rocelab.traffic.jobparts import parts_of
from rocelab.traffic.session import NO_JOB


def test_a_server_without_a_job_has_the_fields_of_one_with_a_job() -> None:
    fabric = plan(LabSpec.model_validate({"name": "two", "fabric": {"racks": 2}}))
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 2, "size": "1MB"})
    parts = parts_of([plan_job(fabric, job)])
    assert all(part.fields.keys() == NO_JOB.fields.keys() for part in parts.values())
