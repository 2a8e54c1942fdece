"""A comparison computed by hand: two schemes, two numbers of queue pairs, two placements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from rocelab.drills.compare.figures import Expected, cell_figures, run_of, status_of
from rocelab.drills.compare.matrix import ComparisonCell, cells
from rocelab.drills.compare.options import MatrixOptions
from rocelab.labfile.catalog import find_lab
from rocelab.labfile.load import load_spec
from rocelab.planning.build import plan
from rocelab.planning.fabric import DirectedLink, Direction, Fabric
from rocelab.results.comparison import SCHEMA_VERSION, CellResult, Comparison, ComparisonRun, Status
from rocelab.results.job import JobReport
from rocelab.runs.jobreport import job_reports
from tests.helpers import job_sample


def fabric() -> Fabric:
    return plan(load_spec(find_lab("zone-1-1")))


def asked(
    schemes: str = "ecmp,spray", qps: str = "1,4", placement: str = "contiguous,fragmented"
) -> tuple[ComparisonCell, ...]:
    return cells(fabric(), MatrixOptions(schemes, qps, placement), {"size": "8MB"})


def report(**keys: object) -> JobReport:
    job = job_sample.result(job_sample.allreduce())
    measured = job_sample.traffic(job), job_sample.counts(job)
    paths = job_sample.paths(job.plan)
    (made,) = job_reports(job_sample.record(*measured, paths=paths))
    return replace(made, **keys)  # type: ignore[arg-type]


def packets(first: int, second: int) -> dict[DirectedLink, int]:
    """Data packets on both racks' links to the first and the second spine, in each direction."""
    return {
        direction: first if link.b.node == "ctsw1" else second
        for link in job_sample.fabric().sessions
        for direction in (link.up, link.down)
    }


CROSSING = {
    ("rtsw-ctsw", direction, rack): 4 for direction in Direction for rack in ("rtsw1", "rtsw2")
}


def run(
    first: int = 30, second: int = 10, expected: Expected | None = None, **keys: object
) -> ComparisonRun:
    return run_of(job_sample.fabric(), report(**keys), packets(first, second), CROSSING, expected)


def cell(
    asked: ComparisonCell, runs: tuple[ComparisonRun, ...], reason: str | None = None
) -> CellResult:
    status = (Status.NOT_RUN, reason) if reason else status_of(runs, len(runs))
    return CellResult(
        scheme=asked.scheme.model_dump(mode="json"),
        qps=asked.qps,
        placement=asked.placement,
        job=asked.job.model_dump(mode="json", exclude_none=True),
        status=status[0],
        reason=status[1],
        figures=cell_figures(runs, 400e9) if runs else None,
        runs=runs,
    )


def comparison(
    runs_of: Callable[[ComparisonCell], tuple[ComparisonRun, ...]] = lambda _: (run(),),
    refused: str | None = None,
) -> Comparison:
    return Comparison(
        schema_version=SCHEMA_VERSION,
        command="rocelab compare t",
        lab=job_sample.fabric().spec.model_dump(mode="json"),
        environment=job_sample.ENVIRONMENT,
        dilation=1000.0,
        nic_rate_bps=400 * 10**9,
        repeats=1,
        notes=(),
        cells=tuple(
            cell(combination, (), "no <eBPF> here")
            if combination.scheme.kind == refused
            else cell(combination, runs_of(combination))
            for combination in asked()
        ),
    )
