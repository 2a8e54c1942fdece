"""The headlines of a job that serves requests, in simulations and on labs."""

from __future__ import annotations

from rocelab.jobs.served import Carried, Served
from rocelab.jobs.workloads import WorkloadRate


def served_headlines(served: Served | None) -> list[WorkloadRate]:
    """The figures of requests that sweeps and expectations compare."""
    if served is None:
        return []
    carried = served.by(Carried.CARRIED)
    figures = (
        ("ttft_p50", "TTFT p50", carried.latency("ttft").p50_ns),
        ("ttft_p99", "TTFT p99", carried.latency("ttft").p99_ns),
        ("itl_p99", "ITL p99", carried.latency("itl").p99_ns),
    )
    rows = [
        WorkloadRate(name, title, "ns", [value])
        for name, title, value in figures
        if value is not None
    ]
    rows.append(
        WorkloadRate("request_goodput", "goodput of requests", "%", [100 * carried.goodput])
    )
    return rows
