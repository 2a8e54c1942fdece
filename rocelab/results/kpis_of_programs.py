"""The KPIs of programs on a lab's servers, and those of TCP which jobs have too."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from rocelab.base.quantities import BPS_PER_GBS
from rocelab.results.kpi import Better, Kpi, PhaseJob, Quantity, attribute
from rocelab.results.programs import ProgramsRun, p99


def _is_tcp(job: PhaseJob) -> bool:
    return job.report.tcp is not None


def _longest_stall_of_job(job: PhaseJob) -> float | None:
    tcp = job.report.tcp
    return None if tcp is None else tcp.longest_stall_ns / job.report.clock.dilation


def _longest_stall(run: ProgramsRun) -> int:
    connections = run.report.connections
    return max((connection.longest_stall_ns for connection in connections), default=0)


def _resent_share(run: ProgramsRun) -> float | None:
    connections = run.report.connections
    sent = sum(connection.delivered_bytes + connection.resent_bytes for connection in connections)
    return sum(connection.resent_bytes for connection in connections) / sent if sent else None


def _goodput(run: ProgramsRun) -> float:
    delivered = sum(connection.delivered_bytes for connection in run.report.connections)
    return delivered * 8e9 / run.report.lasted_ns / BPS_PER_GBS


def _of_metric(name: str, title: str, what: str, statistic: Callable[[list[float]], float]) -> Kpi:
    """A figure of the first metric of the drill."""

    def read(run: ProgramsRun) -> float | None:
        values = run.metrics[0].values
        return statistic(values) if values else None

    return Kpi(
        name,
        Quantity.RATIO,
        f"First metric, {title}",
        f"{what} of the first of traffic.metrics, in its own unit",
        of_programs=read,
        applies_to_programs=lambda run: bool(run.metrics),
    )


PROGRAM_KPIS = (
    Kpi(
        "failed_programs",
        Quantity.COUNT,
        "Programs that failed",
        "programs with an exit code other than 0, or that did not end in time",
        Better.LOWER,
        of_programs=lambda run: sum(bool(rank.code) for rank in run.report.ranks),
    ),
    Kpi(
        "stalled_connections",
        Quantity.COUNT,
        "Stalled connections",
        "TCP connections whose sender had something to send and got no acknowledgement for 100 ms",
        Better.LOWER,
        of_programs=lambda run: sum(bool(one.stalls) for one in run.report.connections),
        of_job=attribute("report.tcp.stalled"),
        applies=_is_tcp,
        summed=True,
    ),
    Kpi(
        "longest_stall",
        Quantity.DURATION,
        "Longest stall",
        "the longest such time of a TCP connection",
        Better.LOWER,
        of_programs=_longest_stall,
        of_job=_longest_stall_of_job,
        applies=_is_tcp,
    ),
    Kpi(
        "tcp_goodput",
        Quantity.BANDWIDTH,
        "TCP goodput",
        "payload that all TCP connections delivered, for each second of the programs",
        Better.HIGHER,
        of_programs=_goodput,
    ),
    Kpi(
        "tcp_resent",
        Quantity.RATIO,
        "TCP payload sent again",
        "share of the payload that TCP retransmitted",
        Better.LOWER,
        of_programs=_resent_share,
        of_job=attribute("report.tcp.resent_share"),
        applies=_is_tcp,
    ),
    _of_metric("metric_median", "median", "the median", median),
    _of_metric("metric_p99", "p99", "the 99th percentile", p99),
    _of_metric("metric_max", "maximum", "the maximum", max),
)
