"""The flows of runs as they are published, and as others read them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab import record
from rocelab.jobs.job import JobSpec
from rocelab.jobs.jobplanning import plan_job
from rocelab.lab.lab import Lab
from rocelab.record import LabFiles
from rocelab.traffic.demand import FOLDER, job_demands, published, read_published


def test_flows_are_read_as_they_were_published_while_their_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "RUN_ROOT", tmp_path)
    files = LabFiles("tiny")
    assert read_published(files) == []
    files.root.mkdir()
    job = JobSpec(pattern="allreduce", ranks=4, size="1MB", transport={"qps": 2})  # type: ignore[arg-type]
    flows = job_demands([plan_job(Lab.planned("tiny").fabric, job)])
    assert len(flows) == 8
    with published(files, flows):
        for name, text in (("a", "["), ("b", "7"), ("c", '[{"nic": 1}]'), ("d", '{"x": 1}')):
            (files.root / FOLDER / f"{name}.json").write_text(text)
        assert read_published(files) == flows
    assert read_published(files) == []
