"""The KPIs of jobs that serve requests."""

from __future__ import annotations

from collections.abc import Callable

from rocelab.jobs.served import Carried, Served
from rocelab.results.kpi import Better, Kpi, PhaseJob, Quantity


def _served(job: PhaseJob) -> Served | None:
    return None if job.report.workload is None else job.report.workload.served


def _is_serving(job: PhaseJob) -> bool:
    return _served(job) is not None


def _latency(name: str, figure: str) -> Callable[[PhaseJob], float | None]:
    """A figure of a latency as the network was."""

    def read(job: PhaseJob) -> float | None:
        served = _served(job)
        assert served is not None
        value: float | None = getattr(served.by(Carried.CARRIED).latency(name), figure)
        return value

    return read


def _of_network(name: str) -> Callable[[PhaseJob], float | None]:
    """The share of a mean latency that a network which takes no time would save."""

    def read(job: PhaseJob) -> float | None:
        served = _served(job)
        assert served is not None
        carried, none = (
            served.by(network).latency(name).mean_ns for network in (Carried.CARRIED, Carried.NONE)
        )
        return None if not carried or none is None else 1 - none / carried

    return read


def _goodput(job: PhaseJob) -> float:
    served = _served(job)
    assert served is not None
    return served.by(Carried.CARRIED).goodput


def _time(name: str, title: str, meaning: str, of: str, figure: str) -> Kpi:
    return Kpi(
        name,
        Quantity.DURATION,
        title,
        meaning,
        better=Better.LOWER,
        of_job=_latency(of, figure),
        applies=_is_serving,
    )


REQUEST_KPIS = (
    _time(
        "ttft_p50",
        "TTFT, median",
        "of requests: from arrival to the first token, modelled",
        "ttft",
        "p50_ns",
    ),
    _time("ttft_p99", "TTFT, p99", "the same, 99th percentile, modelled", "ttft", "p99_ns"),
    _time(
        "itl_p50",
        "Inter-token latency, median",
        "mean time between the tokens of a request after its first, modelled",
        "itl",
        "p50_ns",
    ),
    _time(
        "itl_p99",
        "Inter-token latency, p99",
        "the same, 99th percentile, modelled",
        "itl",
        "p99_ns",
    ),
    _time(
        "e2e_p99",
        "Time to the last token, p99",
        "of requests: from arrival to the last token, 99th percentile, modelled",
        "e2e",
        "p99_ns",
    ),
    _time(
        "transfer_p99",
        "Transfer of a cache, p99",
        "from the end of a prefill until its cache has arrived, 99th percentile, modelled",
        "transfer",
        "p99_ns",
    ),
    Kpi(
        "request_goodput",
        Quantity.RATIO,
        "Goodput of requests",
        "the share of requests that meet every objective of the job",
        better=Better.HIGHER,
        of_job=_goodput,
        applies=_is_serving,
    ),
    Kpi(
        "ttft_network_share",
        Quantity.RATIO,
        "TTFT, the network's share",
        "of the mean: what a network that takes no time would save",
        better=Better.LOWER,
        of_job=_of_network("ttft"),
        applies=_is_serving,
    ),
)
