"""Lossless classes on each kind of fabric: NICs with two ports, rails, fat trees, three tiers."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from time import monotonic_ns

import pytest
import yaml

from rocelab.dataplane.pfc.reading import PauseReader
from rocelab.jobs.job import JobSpec
from rocelab.lab.lab import Lab
from rocelab.labfile.catalog import find_lab
from rocelab.runs.jobs import run_job
from tests.helpers.lossless import in_queue
from tests.helpers.measured import measured
from tests.helpers.running import running
from tests.helpers.waiting import wait_until

pytestmark = [pytest.mark.few_at_once, pytest.mark.long]

QUEUES = {
    "ecn": {"kmin": "40MB", "kmax": "60MB"},
    "pfc": {"xoff": "100KB", "xon_offset": "5KB", "memory": "1MB"},
}
JOB = {
    "pattern": "incast",
    "ranks": 8,
    "size": "512KB",
    "iterations": 1,
    "warmup_iterations": 0,
    "transport": {"qps": 2, "ecn": "not-ect", "dcqcn": "off"},
}


def is_at_rest(reader: PauseReader) -> bool:
    counters = reader.counters(monotonic_ns()).values()
    return not any(port.is_paused or in_queue(port) for port in counters)


@pytest.mark.parametrize("name", ["hpn-small", "rail-small", "fat-tree-4", "zones-small"])
def test_an_incast_pauses_and_loses_nothing(name: str, tmp_path: Path) -> None:
    written = yaml.safe_load(find_lab(name).read_text())
    file = tmp_path / "lab.yaml"
    keys = {"name": f"t-{name}", "queues": QUEUES, "dilation": 20_000}
    file.write_text(yaml.safe_dump({**written, **keys}))
    with running(Lab.planned(file)) as lab:
        report = measured(lambda: run_job(lab, JobSpec.model_validate(JOB)))
        with PauseReader(lab.fabric) as reader:
            wait_until(partial(is_at_rest, reader), "nothing is paused or queued")
            assert reader.imbalance() == ()
    lossless = report.lossless
    assert lossless is not None
    assert lossless.transitions > 0
    assert lossless.dropped == report.roce.retransmitted == 0
    assert lossless.unbalanced == ()
