"""A document of each kind that has a page, made without a lab."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from rocelab.base.documents import to_json
from rocelab.jobs.job import JobSpec
from rocelab.jobs.job_spec import collective_job
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.report.compare.document import comparison_document
from rocelab.report.difference import difference_document
from rocelab.report.document import Document
from rocelab.report.drill import drill_document
from rocelab.report.job import job_document
from rocelab.report.simulation.document import simulation_document
from rocelab.report.simulation.whatif import outlook_document, what_if_document
from rocelab.results.difference import difference
from rocelab.results.simulation import SimulationReport
from rocelab.results.whatif import JobCost, JobOutlook, Outlook, WhatIf
from rocelab.sim.events.event_spec import TimelineSpec
from rocelab.sim.events.sentence import parse_event
from rocelab.sim.options import Options
from rocelab.sim.simulate import simulate
from rocelab.sim.sweep.cells import cells_of
from rocelab.sim.sweep.report import sweep_document
from rocelab.sim.sweep.sweep_spec import read_sweep
from tests.helpers import comparison_sample, phases_sample, report_sample

COST = JobCost("llama", 16, 0.1, 7, 2.0, 2.5, 0.0, False, 0.0, 0.0, 1800.0, False, 1800.0, 8.0)
OUTLOOK = JobOutlook(
    "llama", 16, 100, 1000.0, 900.0, 10.0, 20.0, False, 3, 50.0, 20.0, 0.85, {}, 0.9
)
SWEEP = """\
lab: zone-1-1
job: {pattern: allreduce, ranks: 4, size: 1MB}
over:
  job.transport.qps: [1, 4]
  job.size: [1MB, 4MB]
"""


@lru_cache
def simulated(event: str = "") -> SimulationReport:
    """An allreduce of 16 ranks, with an event or none."""
    job = JobSpec.model_validate({"pattern": "allreduce", "ranks": 16, "size": "4MB"})
    timeline = TimelineSpec(events=(parse_event(event),)) if event else None
    options = Options() if timeline is None else Options(timeline=timeline)
    return simulate(load_spec(find_lab("zone-1-1")), (collective_job(job),), options)


def stalled() -> SimulationReport:
    """The same with 5 ms in which nothing is sent, after the failure."""
    report = simulated("fail rtsw1:ctsw1 at 5us for 20us")
    times_ns, rates_bps = report.rate.time_ns, report.rate.rate_bps
    silent = next(
        place for place, rate in enumerate(rates_bps) if not rate and times_ns[place] > 5000
    )
    later = (time_ns + 5e6 for time_ns in times_ns[silent + 1 :])
    return replace(report, rate=replace(report.rate, time_ns=(*times_ns[: silent + 1], *later)))


def sweep() -> Document:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "sweep.yaml"
        file.write_text(SWEEP)
        asked = read_sweep(file)
    rows = [
        {**cell.values, "iteration_time": 1e6 * number, "busbw": 2.5, "error": None}
        | {"wall_s": 1.0, "peak_memory_bytes": 1 << 20, "warnings": None}
        for number, cell in enumerate(cells_of(asked), 1)
    ]
    return sweep_document(asked, rows)


def two_results() -> Document:
    """A drill of five repeats, and five of another FRR that are slower."""
    with TemporaryDirectory() as folder:
        files = [Path(folder) / f"{name}.json" for name in ("old", "new")]
        for file, seeds, frr in zip(
            files, (range(5), range(30, 35)), ("8.4.4", "10.3"), strict=True
        ):
            drill = report_sample.result(*map(report_sample.repeat, seeds))
            environment = replace(drill.environment, frr_version=frr)
            file.write_text(to_json(replace(drill, environment=environment)))
        return difference_document(difference(*files))


def what_if() -> Document:
    return what_if_document(
        WhatIf(1, "zone", "drain ctsw7", 8, 7200.0, 7200.0, 1.0, "as measured", (COST,))
    )


def outlook() -> Document:
    return outlook_document(Outlook(1, "zone", "rates", "", RESTART, ("a", "b"), (OUTLOOK,)))


RESTART = {"checkpoint_every_s": 900.0, "checkpoint_takes_s": 3.0, "restart_takes_s": 300.0}

KINDS: dict[str, Callable[[], Document]] = {
    "drill": lambda: drill_document(report_sample.result()),
    "storm": lambda: drill_document(report_sample.result(report_sample.storm())),
    "phases": lambda: drill_document(phases_sample.result()),
    "job": lambda: job_document(comparison_sample.report()),
    "comparison": lambda: comparison_document(comparison_sample.comparison()),
    "simulation": lambda: simulation_document(simulated()),
    "failure": lambda: simulation_document(simulated("fail rtsw1:ctsw1 at 5us for 20us")),
    "difference": two_results,
    "stall": lambda: simulation_document(stalled()),
    "sweep": sweep,
    "what-if": what_if,
    "long-run": outlook,
}
"""By name."""
