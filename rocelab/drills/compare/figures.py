"""The figures of a comparison, from the reports of its jobs and the packets counted on links.

Makes a `Run` from a `JobReport`, data packets per link as the kernels counted them, and
predictions, and the figures of a cell from several runs. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rocelab.base.statistics import spread
from rocelab.base.units import parse_size_bytes
from rocelab.jobs.collectives import Pattern
from rocelab.jobs.performance import PerformanceRow, jct_ratio
from rocelab.planning.fabric import Direction, Fabric
from rocelab.prediction.loads import misplaced_packets
from rocelab.results.comparison import CellFigures, ComparisonRun, LinkUse, Status, TierFigures
from rocelab.results.job import JobReport, Times
from rocelab.routes.balance import Polarization, TierBalance, link_loads, tier_balances
from rocelab.traffic.taps import LinkPackets

SECOND_NS = 10**9
GBPS = 10**9

Crossing = Mapping[tuple[str, Direction, str], int]


@dataclass(frozen=True, slots=True)
class Expected:
    """The prediction for a run's data: packets per link, and the tiers' polarization."""

    packets: LinkPackets
    polarizations: tuple[Polarization, ...]


def run_of(
    fabric: Fabric,
    report: JobReport,
    packets: LinkPackets,
    crossing: Crossing,
    expected: Expected | None,
) -> ComparisonRun:
    """The figures of one run.

    `packets` are data packets of every link between switches; `crossing` counts the flows of each
    group of parallel links. Raises KeyError for a link that was not counted.
    """
    loads = link_loads(fabric, packets)
    job_time = _job_time(report)
    misplaced = None
    if expected is not None:
        misplaced = misplaced_packets(packets, expected.packets)
    return ComparisonRun(
        problems=report.problems,
        errors=report.errors,
        warnings=report.warnings,
        iterations=report.iterations,
        busbw_gbs=_busbw(report),
        jct_ratio=_jct_ratio(report),
        job_time=job_time,
        transport=report.roce,
        fidelity=report.fidelity,
        marked=sum(queue.marked for queue in report.queues),
        dropped_packets=sum(queue.dropped_packets for queue in report.queues),
        links=_links(fabric, report, packets, job_time),
        tiers=tier_balances(loads, crossing),
        polarizations=() if expected is None else expected.polarizations,
        misplaced_packets=misplaced,
        nics=tuple(rank.nic for rank in report.ranks),
        flows=report.flows,
    )


def status_of(
    runs: Sequence[ComparisonRun], wanted: int, stopped: str | None = None
) -> tuple[Status, str | None]:
    """The status of a cell with these runs, and its reason. A cell is measured if at least one run
    is valid.

    `wanted` runs were asked for; `stopped` is the error that ended them early.
    """
    if not runs:
        return Status.NOT_RUN, stopped
    invalid = [run for run in runs if not run.valid]
    if len(invalid) < len(runs):
        reasons = []
        if invalid:
            reasons.append(f"{len(invalid)} of {wanted} runs left out: {invalid[0].why[0]}")
        if stopped is not None:
            reasons.append(f"{wanted - len(runs)} of {wanted} runs not made: {stopped}")
        return Status.MEASURED, "; ".join(reasons) or None
    failed = next((run for run in invalid if run.errors), None)
    if failed is not None:
        return Status.FAILED, failed.errors[0]
    return Status.INVALID, invalid[0].why[0]


def cell_figures(runs: Sequence[ComparisonRun], nic_rate_bps: float) -> CellFigures | None:
    """The figures of several runs, None if no iteration was measured."""
    used = [run for run in runs if run.valid] or list(runs)
    busbw = [value for run in used for value in run.busbw_gbs]
    ratios = [value for run in used for value in run.jct_ratio]
    if not busbw or not ratios:
        return None
    band = spread(busbw)

    def per_second(count: Callable[[ComparisonRun], int]) -> float:
        return _median([count(run) / (run.job_time.modelled_ns / SECOND_NS) for run in used])

    def share(count: Callable[[ComparisonRun], int]) -> float:
        return _median([count(run) / max(1, run.transport.data_packets) for run in used])

    return CellFigures(
        busbw_gbs=band,
        jct_ratio=spread(ratios),
        goodput_share=band.median * 8 * GBPS / nic_rate_bps,
        out_of_order_pps=per_second(lambda run: run.transport.out_of_order),
        out_of_order_share=share(lambda run: run.transport.out_of_order),
        retransmission_pps=per_second(lambda run: run.transport.retransmitted),
        retransmitted=_median([run.transport.retransmitted for run in used]),
        ecn_marking_share=share(lambda run: run.transport.ce),
        marked=_median([run.marked for run in used]),
        dropped_packets=_median([run.dropped_packets for run in used]),
        tiers=tuple(_tier([run.tiers[index] for run in used], used) for index in _tiers(used)),
        polarizations=used[0].polarizations,
        misplaced_packets=_most([run.misplaced_packets for run in used]),
    )


def _tiers(runs: Sequence[ComparisonRun]) -> range:
    return range(len(runs[0].tiers))


def _tier(balances: Sequence[TierBalance], runs: Sequence[ComparisonRun]) -> TierFigures:
    first = balances[0]
    wholes = [balance.all_links for balance in balances]
    random = first.random
    used = [
        max(
            link.utilization
            for link in run.links
            if (link.tier, link.direction) == (first.tier, first.direction)
        )
        for run in runs
    ]
    return TierFigures(
        tier=first.tier,
        direction=first.direction,
        links=first.all_links.links,
        mmr=_known([whole.mmr for whole in wholes]),
        jfi=_known([whole.jfi for whole in wholes]),
        cov=_known([whole.cov for whole in wholes]),
        unused=_median([whole.unused for whole in wholes]),
        random_mmr=None if random is None else random.mmr,
        random_mmr_p99=None if random is None else random.mmr_p99,
        random_jfi=None if random is None else random.jfi,
        random_unused=None if random is None else random.unused_fraction * random.links,
        max_utilization=_median(used),
    )


def _median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def _known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return _median(known) if known else None


def _most(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def _job_time(report: JobReport) -> Times:
    steps = max((len(sender.rate_bps) for sender in report.goodput.senders), default=0)
    step = report.goodput.step
    if not steps or not step.lab_ns:
        lab_ns = report.fidelity.elapsed_s * SECOND_NS
        return Times(lab_ns, lab_ns / report.clock.dilation)
    return Times(steps * step.lab_ns, steps * step.modelled_ns)


def _busbw(report: JobReport) -> tuple[float, ...]:
    job = report.job
    size = parse_size_bytes(job["size"])
    return tuple(
        PerformanceRow(Pattern(job["pattern"]), job["ranks"], size, time.modelled_ns).busbw_gbs
        for time in report.iterations
        if not report.errors
    )


def _jct_ratio(report: JobReport) -> tuple[float, ...]:
    least = report.roofline
    if least is None or report.errors:
        return ()
    return tuple(jct_ratio(time.modelled_ns, least.modelled_ns) for time in report.iterations)


def _links(
    fabric: Fabric, report: JobReport, packets: LinkPackets, job_time: Times
) -> tuple[LinkUse, ...]:
    """The use of links between switches; nearly all their frames are the job's own."""
    seconds = job_time.lab_ns / SECOND_NS
    figures = report.figures_by_link
    return tuple(
        LinkUse(
            link=direction.name,
            tier=direction.tier,
            direction=direction.direction,
            sender=direction.sender,
            packets=packets[direction],
            utilization=8
            * figures[direction].bytes
            / (direction.link.rate_bps / report.clock.dilation * seconds),
        )
        for link in fabric.trunks
        for direction in (link.up, link.down)
    )
