"""Whole files of the kinds that take work to make: results, a trace, a sweep that has ended."""

from __future__ import annotations

from pathlib import Path

import yaml

from rocelab.base.documents import to_json
from rocelab.jobs.job_spec import SimulatedJob
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.reliability import event_cost
from rocelab.sim.simulate import Simulation
from rocelab.sim.traces.export import write_trace
from tests.helpers import report_sample
from tests.helpers.command import rocelab

SWEEP = {
    "lab": "zone-small",
    "job": {"pattern": "allreduce", "ranks": 2, "size": "1MB"},
    "over": {"job.transport.qps": [1, 2]},
}


def make_samples(folder: Path) -> None:
    """Write them into a new folder."""
    folder.mkdir(parents=True)
    spec = load_spec(find_lab("zone-small"))
    job = SimulatedJob.model_validate(
        {"name": "job", "collective": {"pattern": "allreduce", "ranks": 4, "size": "1MB"}}
    )
    simulation = Simulation(spec, [job])
    (folder / "simulation.json").write_text("".join(to_json(simulation.report())))
    cost = event_cost(spec, [job], parse_event("fail rtsw1:ctsw1 for 1h"))
    (folder / "whatif.json").write_text("".join(to_json(cost)))
    drill = report_sample.result(report_sample.repeat(1), report_sample.repeat(2))
    (folder / "drill.json").write_text("".join(to_json(drill)))
    write_trace(simulation.workloads[0], folder, name="trace")
    swept = folder / "swept"
    swept.mkdir()
    (swept / "sweep.yaml").write_text(yaml.safe_dump(SWEEP))
    done = rocelab("sweep", swept / "sweep.yaml", "--out", swept / "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    for name in ("cells.jsonl", "sweep.parquet"):
        (swept / "out" / name).rename(swept / name)
    for path in sorted((swept / "out").iterdir()):
        path.unlink()
    (swept / "out").rmdir()
