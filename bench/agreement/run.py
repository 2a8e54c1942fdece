"""Runs the jobs of one lab: brings it up, runs every job on it and in both engines, takes it down.

The result is a `LabResult`, also after a failure. Only valid runs count; others are repeated.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean

import numpy as np

from bench.agreement.document import (
    SCHEMA_VERSION,
    CellResult,
    LabResult,
    Loads,
    Run,
)
from bench.agreement.plan import Cell
from bench.agreement.queues import COUNTS, PortCounts, Queues, joined
from bench.agreement.simulated import simulate_packets
from rocelab import JobReport, Lab, LabSpec, RocelabError, RunningLab, plan, run_job
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.observe.environment import read_environment
from rocelab.observe.timeline import opened_namespaces
from rocelab.planning.queues import BINS
from rocelab.prediction.loads import by_link
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, predict_loads
from rocelab.results.job import QueueFigures
from rocelab.results.lossless import PauseFigures
from rocelab.runs.attempts import RETRIES, measure_valid
from rocelab.traffic.taps import LinkPackets, Taps
from rocelab.wire.filters import data_filter

DRAWS, FREE_DRAWS = 300, 60
"""Runs of the packet engine of a job that `is_repeated`, since the time of an AlltoAll depends on
which flows got ahead; and of any other. Queues are kept of FREE_DRAWS."""

RUNS, FREE_RUNS = 10, 3
"""Runs of a job in the lab, and of one that is not `is_repeated`."""

SHOWN = 4
"""The most differing links that are named."""

Sink = Callable[[str], None]
"""Receives the name of the present step."""


def measure_lab(name: str, cells: Sequence[Cell], watch: Sink) -> LabResult:
    """Bring a lab up, run its cells, take it down.

    An error is in the result, with the measurements before it. Raises MachineError if FRR is not
    installed.
    """
    spec = cells[0].spec
    planned = Lab(plan(spec))
    fabric = planned.fabric
    started = time.monotonic()
    result = LabResult(
        schema_version=SCHEMA_VERSION,
        name=name,
        lab=spec.model_dump(mode="json", exclude_none=True),
        machines=(read_environment(),),
        load_average=os.getloadavg(),
        nics=sum(len(fabric.nics(server.name)) for server in fabric.servers),
        dilation=spec.dilation,
        cells=(),
        took_s=0.0,
        failed=None,
    )
    scheme = spec.scheme
    try:
        watch("up")
        with planned.brought_up() as lab:
            for cell in cells:
                watch(cell.shape.name)
                if cell.spec.scheme != scheme:
                    scheme = cell.spec.scheme
                    with lab.locked():
                        lab.steering.set_scheme(scheme)
                result = replace(result, cells=(*result.cells, measure_cell(lab, cell)))
    except RocelabError as error:
        # What is measured by now is kept, and the other labs are still to come.
        result = replace(result, failed=error.message)
    return replace(result, took_s=time.monotonic() - started)


def measure_cell(lab: RunningLab, cell: Cell, most: int = RUNS) -> CellResult:
    """Run a job on a running lab, up to `most` times, and compare it with its simulations. Raises
    as `run_job` does."""
    simulated = cell.simulated
    cell_result = CellResult(
        name=cell.shape.name,
        title=cell.shape.title,
        scheme=cell.spec.scheme.kind,
        job=cell.job.model_dump(mode="json", exclude_none=True),
        attempts=0,
        problems=(),
        loads=None,
        lab=(),
        fluid_ns=fmean(simulated.iteration_ns),
        bottleneck=simulated.bottleneck,
        least_ns=simulated.least_ns,
        packets=(),
    )
    cell_result = simulated_packets(cell_result, cell.spec)
    wanted = min(most, RUNS if cell_result.is_repeated else FREE_RUNS)
    runs = measure_valid(wanted, RETRIES, lambda _: _run(lab, cell), lambda run: _is_valid(run[0]))
    valid = [(report, packets) for report, packets in runs if _is_valid(report)]
    last = runs[-1][0]
    return replace(
        cell_result,
        attempts=len(runs),
        problems=() if valid else (*last.problems, *last.errors),
        loads=loads_of(cell, valid[0][1], _predicted_flows(lab, cell)) if valid else None,
        lab=(tuple(_measured(report) for report, _ in valid),),
        lab_queues=joined([queues_of(cell.spec, report) for report, _ in valid]) if valid else None,
    )


def simulated_packets(cell: CellResult, spec: LabSpec) -> CellResult:
    """A job with runs of the packet engine, DRAWS or FREE_DRAWS."""
    first = [simulate_packets(spec, cell.spec, seed) for seed in range(FREE_DRAWS)]
    cell = replace(
        cell,
        packets=tuple(run for run, _ in first),
        packets_queues=joined([queues for _, queues in first]),
    )
    if not cell.is_repeated:
        return cell
    more = (simulate_packets(spec, cell.spec, seed)[0] for seed in range(FREE_DRAWS, DRAWS))
    return replace(cell, packets=(*cell.packets, *more))


def _is_valid(report: JobReport) -> bool:
    return not report.problems and not report.errors


def _run(lab: RunningLab, cell: Cell) -> tuple[JobReport, LinkPackets]:
    """A run, and the data packets that arrived over each link."""
    fabric = lab.fabric
    with (
        opened_namespaces(lab, fabric.nodes) as netns_of,
        Taps(fabric, netns_of, fabric.links, data_filter(fabric.family)) as taps,
    ):
        report = run_job(lab, cell.job)
        return report, taps.read()


def _predicted_flows(lab: RunningLab, cell: Cell) -> LinkPackets:
    """Flows per link from the tables of the lab's kernels, as `rocelab predict` has them."""
    fabric = plan(cell.spec)
    rows = rows_of_jobs(plan_jobs(fabric, [cell.job]))
    return by_link(fabric, predict_loads(fabric, rows, Setting(lab.read_fibs())).flows)


def loads_of(cell: Cell, packets: LinkPackets, flows: LinkPackets) -> Loads:
    """What was counted beside what was simulated, link by link. Raises KeyError where a link of the
    one is none of the other's."""
    simulated = cell.simulated
    differing = [
        f"{at.name} from {at.sender}: {packets[at]:,} packets of {flows[at]} flows, "
        f"simulated {expected:,} of {simulated.flows[at]}"
        for at, expected in simulated.packets.items()
        if (packets[at], flows[at]) != (expected, simulated.flows[at])
    ]
    return Loads(
        links=len(packets),
        equal=sum(packets[at] == expected for at, expected in simulated.packets.items()),
        flows_equal=sum(flows[at] == expected for at, expected in simulated.flows.items()),
        packets=sum(packets.values()),
        simulated=sum(simulated.packets.values()),
        differing=tuple(differing[:SHOWN]),
    )


def _measured(report: JobReport) -> Run:
    return Run(
        iteration_ns=fmean(iteration.modelled_ns for iteration in report.iterations),
        marked=sum(queue.marked for queue in report.queues),
        dropped=sum(queue.dropped_packets for queue in report.queues),
        retransmitted=report.roce.retransmitted,
        cnps=report.roce.cnps_received,
        timeouts=report.roce.timeouts,
    )


def queues_of(spec: LabSpec, report: JobReport) -> Queues:
    """What the lab's queues did in a run."""
    queues: dict[str, list[QueueFigures]] = defaultdict(list)
    pauses: dict[str, list[PauseFigures]] = defaultdict(list)
    for queue in report.queues:
        queues[f"{queue.node}:{queue.interface}"].append(queue)
    for port in report.lossless.ports if report.lossless is not None else ():
        pauses[f"{port.node}:{port.interface}"].append(port)
    ports = (
        PortCounts(
            place,
            (sum(queue.marked for queue in queues[place]),),
            (sum(queue.dropped_packets for queue in queues[place]),),
            (max((queue.depth_max_bytes or 0 for queue in queues[place]), default=0),),
            (sum(port.transitions for port in pauses[place]),),
        )
        for place in sorted(queues.keys() | pauses.keys())
    )
    # Where none came marked, all packets of the class could be marked.
    first = [
        queue
        for queue in report.queues
        if queue.traffic_class in spec.queues.marked
        and queue.ce_out == queue.marked
        and queue.packets_by_depth
    ]
    return Queues(
        tuple(port for port in ports if any(any(getattr(port, count)) for count in COUNTS)),
        *(
            tuple(np.sum([(0,) * BINS, *columns], axis=0).tolist())
            for columns in (
                [queue.packets_by_depth for queue in first],
                [queue.marked_by_depth for queue in first],
            )
        ),
    )
