"""The KPIs of a phase, from the reports of its jobs.

In: a `JobReport` of each job that ran at the same time and, where the phase was modelled, its
`FairShares`. Out: a value for each of JOB_KPIS, None for what a job does not have. Nothing is
measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from labs.plan.build import build_fabric
from labs.plan.queues import class_of_dscp
from labs.spec.model import LabSpec
from scripts.balance import Direction, leaf_uplinks
from scripts.drill.expectations import JOB_KPIS, KpiValue
from scripts.drill.phases.fairness import FairShares
from scripts.job.document import JobReport
from traffic.job import JobSpec

CNP_CLASS, ACK_CLASS = 5, 6
"""Where the kit's default map puts CNPs and ACKs, as the switch teams' does."""

BYTES_PER_GB_BITS = 8e9

SUMMED = ("retransmitted_packets", "naks", "timeouts", "ce_packets", "cnps")
"""What endpoints count: a phase's is that of all its jobs."""


def job_kpis(
    reports: Sequence[JobReport], fair: FairShares | None = None
) -> tuple[dict[str, KpiValue], ...]:
    """A value per KPI for each job of a phase, in the KPI's own unit. What devices counted is of
    all jobs, and the same for each."""
    classes = frozenset(map(data_class, reports))
    return tuple(_job_kpis(report, fair, classes) for report in reports)


def phase_kpis(jobs: Sequence[Mapping[str, KpiValue]]) -> tuple[dict[str, KpiValue], ...]:
    """What a phase's expectations are held against, as many as jobs: the counts of all of them
    together, and every other figure of each job that has it."""
    found: list[dict[str, KpiValue]] = [{} for _ in jobs]
    for kpi in JOB_KPIS:
        measured = [figures[kpi] for figures in jobs if figures[kpi] is not None]
        if kpi in SUMMED:
            measured = [sum(value or 0 for value in measured)]
        measured = measured or [None]
        for place, figures in enumerate(found):
            figures[kpi] = measured[min(place, len(measured) - 1)]
    return tuple(found)


def _job_kpis(
    report: JobReport, fair: FairShares | None, classes: frozenset[int]
) -> dict[str, KpiValue]:
    transport, trips, fairness = report.transport, report.round_trips, report.fairness
    figures: dict[str, KpiValue] = {
        **dict.fromkeys(JOB_KPIS),
        **_queue_kpis(report, classes),
        "completed": not report.errors
        and transport.posted_bytes == transport.acked_bytes == transport.delivered_bytes,
        "accounted": all(check.agrees for check in report.accounting),
        "busbw": _headline(report, "busbw"),
        "jct_ratio": _headline(report, "jct_ratio"),
        "retransmitted_packets": transport.retransmitted,
        "naks": transport.naks_sent,
        "timeouts": transport.timeouts,
        "ce_packets": transport.ce,
        "cnps": transport.cnps_received,
    }
    goodput_bps = _headline(report, "goodput")
    if goodput_bps is not None:
        figures["goodput"] = goodput_bps / BYTES_PER_GB_BITS
    if trips is not None:
        figures["rtt_p50"] = trips.p50.modelled_ns
        figures["rtt_p99"] = trips.p99.modelled_ns
    if fairness is not None:
        figures["rate_ratio"] = fairness.ratio
        figures["sender_jfi"] = fairness.jfi
    if report.impact is not None:
        figures["jct_overhead"] = report.impact.overhead
        figures["zero_impact"] = report.impact.zero_impact
    if fair is not None:
        figures["time_to_fairness"] = fair.lab_ns
        figures["model_time_to_fairness"] = fair.model_ns
        figures["time_to_fairness_ratio"] = fair.ratio
    figures |= _link_kpis(report)
    uplinks = leaf_uplinks(report.tiers)
    if uplinks is not None and uplinks.mmr is not None:
        figures["uplink_mmr"] = uplinks.mmr
        figures["uplink_jfi"] = uplinks.jfi
    return figures


def _link_kpis(report: JobReport) -> dict[str, KpiValue]:
    fabric = build_fabric(LabSpec.model_validate(report.lab))
    inside = {link.name for link in fabric.sessions}
    carried = [bool(each.packets) for each in report.links if each.link in inside]
    figures: dict[str, KpiValue] = {}
    if any(carried):
        figures["unused_links"] = carried.count(False) / len(carried)
    received = {
        each.link: each.packets for each in report.links if each.direction is Direction.DOWN
    }
    shares = []
    for server in fabric.servers:
        for nic in fabric.nics(server.name):
            ports = [received.get(link.name, 0) for link in nic.links]
            if len(ports) > 1 and any(ports):
                shares.append(max(ports) / sum(ports))
    if shares:
        figures["nic_port_share"] = max(shares)
    return figures


def data_class(report: JobReport) -> int:
    """The traffic class of the job's data in its lab."""
    lab = LabSpec.model_validate(report.lab)
    dscp = JobSpec.model_validate(report.job).transport.dscp
    return class_of_dscp(lab.queues.dscp)[dscp]


def _headline(report: JobReport, name: str) -> float | None:
    found = (each.modelled.median for each in report.headlines if each.name == name)
    return next(found, None)


def _queue_kpis(report: JobReport, classes: frozenset[int]) -> dict[str, KpiValue]:
    """None of them where the lab's ports have no queues; `classes` are those of data."""
    if report.queue_engine == "off":
        return {}
    depths = [
        queue.depth_max_bytes
        for queue in report.queues
        if queue.traffic_class in classes and queue.depth_max_bytes is not None
    ]
    packets = dict.fromkeys((CNP_CLASS, ACK_CLASS), 0)
    for queue in report.queues:
        if queue.traffic_class in packets:
            packets[queue.traffic_class] += queue.packets
    return {
        "dropped_packets": sum(queue.dropped_packets for queue in report.queues),
        "switch_marks": sum(queue.marked for queue in report.queues),
        "marks_outside_data": sum(
            queue.marked for queue in report.queues if queue.traffic_class not in classes
        ),
        "class_5_packets": packets[CNP_CLASS],
        "class_6_packets": packets[ACK_CLASS],
        "queue_max": max(depths) if depths else None,
    }
