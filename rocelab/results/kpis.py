"""The KPIs of a phase, from the reports of its jobs.

In: a `JobReport` of each job that ran at the same time and, where the phase was modelled, its
`FairShares`. Out: a value for each of JOB_KPIS that applies to the job, None for what was not
measured of it; what does not apply (a stream has no busbw) is not in it. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rocelab.forwarding.balance import Direction, leaf_uplinks
from rocelab.jobs.job import JobSpec
from rocelab.plan.build import build_fabric
from rocelab.plan.queues import class_of_dscp
from rocelab.results.expectations import JOB_KPIS, KpiValue
from rocelab.results.job import JobReport
from rocelab.results.shares import FairShares
from rocelab.spec.model import LabSpec

CNP_CLASS, ACK_CLASS = 5, 6
"""Where the kit's default map puts CNPs and ACKs, as the switch teams' does."""

BYTES_PER_GB_BITS = 8e9

SUMMED = ("retransmitted_packets", "naks", "timeouts", "ce_packets", "cnps")
"""What endpoints count: a phase's is that of all its jobs."""


def job_kpis(
    reports: Sequence[JobReport], fair: FairShares | None = None
) -> tuple[dict[str, KpiValue], ...]:
    """A value per KPI that applies, for each job of a phase, in the KPI's own unit. What devices
    counted is of all jobs, and the same for each."""
    classes = frozenset(map(data_class, reports))
    return tuple(_job_kpis(report, fair, classes) for report in reports)


def phase_kpis(jobs: Sequence[Mapping[str, KpiValue]]) -> tuple[dict[str, KpiValue], ...]:
    """What a phase's expectations are held against, as many as jobs: the counts of all of them
    together, and every other figure of each job that it applies to, measured or not."""
    found: list[dict[str, KpiValue]] = [{} for _ in jobs]
    for kpi in JOB_KPIS:
        values = [figures[kpi] for figures in jobs if kpi in figures]
        if kpi in SUMMED:
            values = [sum(value or 0 for value in values)]
        if not values:
            continue
        for place, figures in enumerate(found):
            figures[kpi] = values[min(place, len(values) - 1)]
    return tuple(found)


def _job_kpis(
    report: JobReport, fair: FairShares | None, classes: frozenset[int]
) -> dict[str, KpiValue]:
    transport, trips = report.transport, report.round_trips
    job = JobSpec.model_validate(report.job)
    figures: dict[str, KpiValue] = {
        **_queue_kpis(report, classes),
        "completed": not report.errors
        and transport.posted_bytes == transport.acked_bytes == transport.delivered_bytes,
        "accounted": all(check.agrees for check in report.accounting),
        "retransmitted_packets": transport.retransmitted,
        "naks": transport.naks_sent,
        "timeouts": transport.timeouts,
        "ce_packets": transport.ce,
        "cnps": transport.cnps_received,
        "rtt_p50": None if trips is None else trips.p50.modelled_ns,
        "rtt_p99": None if trips is None else trips.p99.modelled_ns,
        **_link_kpis(report),
    }
    if job.size is not None:
        figures |= {name: _headline(report, name) for name in ("busbw", "jct_ratio")}
    if job.duration is not None:
        goodput_bps, fairness = _headline(report, "goodput"), report.fairness
        figures["goodput"] = None if goodput_bps is None else goodput_bps / BYTES_PER_GB_BITS
        figures["rate_ratio"] = None if fairness is None else fairness.ratio
        figures["sender_jfi"] = None if fairness is None else fairness.jfi
    if any(event.change == "begin" for event in report.events):
        impact = report.impact
        figures["jct_overhead"] = None if impact is None else impact.overhead
        figures["zero_impact"] = None if impact is None else impact.zero_impact
    # A phase whose job failed is not modelled.
    if fair is not None or report.errors:
        figures["time_to_fairness"] = None if fair is None else fair.lab_ns
        figures["model_time_to_fairness"] = None if fair is None else fair.model_ns
        figures["time_to_fairness_ratio"] = None if fair is None else fair.ratio
    return figures


def _link_kpis(report: JobReport) -> dict[str, KpiValue]:
    fabric = build_fabric(LabSpec.model_validate(report.lab))
    inside = {link.name for link in fabric.sessions}
    carried = [bool(each.packets) for each in report.links if each.link in inside]
    figures: dict[str, KpiValue] = {}
    if carried:
        figures["unused_links"] = carried.count(False) / len(carried) if any(carried) else None
    uplinks = leaf_uplinks(report.tiers)
    if uplinks is not None:
        figures |= {"uplink_mmr": uplinks.mmr, "uplink_jfi": uplinks.jfi}
    received = {
        each.link: each.packets for each in report.links if each.direction is Direction.DOWN
    }
    nics = [
        [received.get(link.name, 0) for link in nic.links]
        for server in fabric.servers
        for nic in fabric.nics(server.name)
        if len(nic.links) > 1
    ]
    if nics:
        shares = [max(ports) / sum(ports) for ports in nics if any(ports)]
        figures["nic_port_share"] = max(shares, default=None)
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
