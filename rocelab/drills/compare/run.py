"""Runs a comparison: brings the lab up, switches to each scheme, and runs and counts each cell's
job.

The result is a `Comparison`. A lab that was up keeps running with its own scheme; any other is
taken down again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rocelab.base.errors import InputError, MachineError, RocelabError
from rocelab.base.progress import Progress, ProgressSink, no_progress
from rocelab.drills.compare.figures import Expected, cell_figures, run_of, status_of
from rocelab.drills.compare.matrix import ComparisonCell
from rocelab.jobs.jobplan import JobPlan
from rocelab.jobs.jobplanning import plan_jobs
from rocelab.lab.inuse import in_use
from rocelab.lab.lab import Lab, RunningLab
from rocelab.labfile.model import SeedPlan
from rocelab.labfile.schemes.ecmp import EcmpScheme
from rocelab.labfile.schemes.scheme_spec import SchemeSpec
from rocelab.observe.environment import environment_of
from rocelab.observe.timeline import opened_namespaces
from rocelab.planning.build import plan
from rocelab.planning.fabric import Fabric
from rocelab.prediction.loads import by_link
from rocelab.prediction.matrix import rows_of_jobs
from rocelab.prediction.predictor import Setting, asked_fabric, predict_loads
from rocelab.record import LabFiles
from rocelab.results.comparison import SCHEMA_VERSION, CellResult, Comparison, ComparisonRun, Status
from rocelab.routes.balance import polarization
from rocelab.runs.jobs import run_planned
from rocelab.traffic.taps import Taps
from rocelab.wire.filters import data_filter


def compare(
    lab: Lab | RunningLab,
    cells: Sequence[ComparisonCell],
    *,
    repeats: int = 1,
    command: str = "",
    progress: ProgressSink = no_progress,
) -> Comparison:
    """Run every cell `repeats` times. `progress` has the stages of the lab, and then a step for
    each run.

    If a scheme or a job does not run here, its cell says why. Raises InputError if a job does not
    fit the lab, before anything changes; MachineError if the lab does not come up.
    """
    for cell in cells:
        plan_jobs(lab.fabric, [cell.job])
    network = next((cell.job.network for cell in cells), None)
    with _lab_up(lab, network, progress) as running, in_use(LabFiles(lab.name), "a comparison"):
        environment = environment_of(running)
        results = _results(running, cells, repeats, progress)
    spec = running.fabric.spec
    return Comparison(
        schema_version=SCHEMA_VERSION,
        command=command,
        lab=spec.model_dump(mode="json", exclude_none=True),
        environment=environment,
        dilation=spec.dilation,
        nic_rate_bps=_nic_rate_bps(running.fabric),
        repeats=repeats,
        notes=running.notes,
        cells=results,
    )


@contextmanager
def _lab_up(
    lab: Lab | RunningLab, network: str | None, progress: ProgressSink
) -> Iterator[RunningLab]:
    """The network of that name of the lab, which is brought up if it is not."""
    if isinstance(lab, RunningLab):
        lab = lab.network(network)
        before = lab.steering.read_scheme()
        try:
            yield lab
        finally:
            with lab.locked():
                lab.steering.set_scheme(before)
        return

    def of_lab(step: Progress) -> None:
        progress(Progress(f"lab: {step.stage}", step.done, step.total))

    with lab.brought_up(of_lab) as running:
        yield running.network(network)


def _results(
    lab: RunningLab, cells: Sequence[ComparisonCell], repeats: int, progress: ProgressSink
) -> tuple[CellResult, ...]:
    results: list[CellResult] = []
    runs_now: SchemeSpec | None = None
    refused: dict[str, str] = {}
    total = len(cells) * repeats
    for number, cell in enumerate(cells):
        kind = cell.scheme.kind
        progress(Progress(cell.title, number * repeats, total))
        if cell.scheme != runs_now and kind not in refused:
            try:
                with lab.locked():
                    lab.steering.set_scheme(cell.scheme)
                runs_now = cell.scheme
            except RocelabError as error:
                refused[kind], runs_now = error.message, None
        if kind in refused:
            results.append(_result(cell, (), Status.NOT_RUN, refused[kind], 0))
            continue
        before = number * repeats
        results.append(_measured(lab, cell, repeats, before, total, progress))
    progress(Progress("", total, total))
    return tuple(results)


def _measured(
    lab: RunningLab,
    cell: ComparisonCell,
    repeats: int,
    before: int,
    total: int,
    progress: ProgressSink,
) -> CellResult:
    runs: list[ComparisonRun] = []
    stopped = None
    try:
        plans = plan_jobs(lab.fabric, [cell.job])
        for repeat in range(repeats):
            progress(Progress(cell.title, before + repeat, total))
            runs.append(_run(lab, cell, plans))
    except (InputError, MachineError) as error:
        stopped = error.message
    return _result(cell, runs, *status_of(runs, repeats, stopped), _nic_rate_bps(lab.fabric))


def _result(
    cell: ComparisonCell,
    runs: Sequence[ComparisonRun],
    status: Status,
    reason: str | None,
    nic_rate_bps: int,
) -> CellResult:
    return CellResult(
        scheme=cell.scheme.model_dump(mode="json"),
        qps=cell.qps,
        placement=cell.placement,
        job=cell.job.model_dump(mode="json", exclude_none=True),
        status=status,
        reason=reason,
        figures=cell_figures(runs, nic_rate_bps) if runs else None,
        runs=tuple(runs),
    )


def _run(lab: RunningLab, cell: ComparisonCell, plans: Sequence[JobPlan]) -> ComparisonRun:
    fabric = lab.fabric
    with (
        opened_namespaces(lab, fabric.switches) as netns_of,
        Taps(fabric, netns_of, fabric.trunks, data_filter(fabric.family)) as taps,
    ):
        (report,) = run_planned(lab, plans).reports
        packets = taps.read()
    rows = rows_of_jobs(plans)
    # Read now, because a scheme's controller may have put its own groups over BGP's routes.
    fib_of = lab.read_fibs()
    expected = None
    if not cell.scheme.unpredictable and all(node.hash_seed for node in fabric.switches):
        loads = predict_loads(asked_fabric(fabric, cell.scheme), rows, Setting(fib_of))
        if loads.packets is not None:
            polarized = tuple(map(polarization, loads.choices))
            expected = Expected(by_link(fabric, loads.packets), polarized)
    crossing = predict_loads(_plainly_hashed(fabric), rows, Setting(fib_of)).crossing
    return run_of(fabric, report, packets, crossing, expected)


def _plainly_hashed(fabric: Fabric) -> Fabric:
    """The fabric with plain hashing and a seed per node, for any scheme: with it, the number of
    flows that each group of links has to spread is predicted."""
    spec = fabric.spec
    hashing = spec.hashing.model_copy(update={"seed": SeedPlan.PER_NODE})
    return plan(spec.model_copy(update={"hashing": hashing, "scheme": EcmpScheme()}))


def _nic_rate_bps(fabric: Fabric) -> int:
    """The rate of a NIC, all its ports together."""
    nic = fabric.nics(fabric.servers[0].name)[0]
    return sum(link.rate_bps for link in nic.links)
