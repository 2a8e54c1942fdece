"""The KPIs of jobs; those of leaf uplinks also of probes."""

from __future__ import annotations

from collections.abc import Iterable

from rocelab.planning.fabric import Direction
from rocelab.results.kpi import Better, Kpi, PhaseJob, Quantity, attribute
from rocelab.results.kpis_of_pauses import PAUSE_KPIS
from rocelab.results.kpis_of_requests import REQUEST_KPIS
from rocelab.results.probes import ProbeRun
from rocelab.routes.balance import TierBalance, leaf_uplinks

CNP_CLASS, ACK_CLASS = 5, 6
"""The traffic class of CNPs and ACKs in the kit's default map."""


def _is_collective(job: PhaseJob) -> bool:
    return job.report.is_collective


def _ends(job: PhaseJob) -> bool:
    return job.report.is_collective or job.report.workload is not None


def _is_open_loop(job: PhaseJob) -> bool:
    return job.report.is_open_loop


def _is_stream(job: PhaseJob) -> bool:
    return not _ends(job)


def _is_queued(job: PhaseJob) -> bool:
    return job.report.queue_engine != "off"


def _is_modelled(job: PhaseJob) -> bool:
    # Results of earlier versions do not say that a phase has a model.
    return job.has_model or job.fair is not None


def _is_broken(job: PhaseJob) -> bool:
    return any(event.change == "begin" for event in job.report.events)


def _is_roce(job: PhaseJob) -> bool:
    return job.report.tcp is None


def _is_complete(job: PhaseJob) -> bool:
    moved = [job.report.transport] if job.report.transport is not None else job.report.ranks
    posted, acked, delivered = (
        sum(getattr(part, f"{what}_bytes") for part in moved)
        for what in ("posted", "acked", "delivered")
    )
    return not job.report.errors and posted == acked == delivered


def _marks_outside_data(job: PhaseJob) -> int:
    queues = job.report.queues
    return sum(queue.marked for queue in queues if queue.traffic_class not in job.data_classes)


def _queue_max(job: PhaseJob) -> int | None:
    depths = [
        queue.depth_max_bytes
        for queue in job.report.queues
        if queue.traffic_class in job.data_classes and queue.depth_max_bytes is not None
    ]
    return max(depths, default=None)


def _undisturbed(run: ProbeRun) -> list[TierBalance]:
    return [tier for hashing in run.hashing if hashing.own for tier in hashing.tiers]


def _uplinks(tiers: Iterable[TierBalance], figure: str) -> float | None:
    """`mmr` or `jfi` of all leaf uplinks."""
    uplinks = leaf_uplinks(tiers)
    value: float | None = None if uplinks is None else getattr(uplinks, figure)
    return value


def _carried(job: PhaseJob) -> list[bool]:
    """Whether each link between switches, in each direction, carried a packet."""
    inside = {link.name for link in job.report.fabric.trunks}
    return [bool(link.packets) for link in job.report.links if link.link in inside]


def _has_links(job: PhaseJob) -> bool:
    return bool(_carried(job))


def _unused_links(job: PhaseJob) -> float | None:
    carried = _carried(job)
    return carried.count(False) / len(carried) if any(carried) else None


def _dual_ports(job: PhaseJob) -> list[list[int]]:
    """Packets received by each port of every NIC that has several."""
    received = {
        link.link: link.packets for link in job.report.links if link.direction is Direction.DOWN
    }
    return [
        [received.get(link.name, 0) for link in nic.links]
        for server in job.report.fabric.servers
        for nic in job.report.fabric.nics(server.name)
        if len(nic.links) > 1
    ]


def _has_dual_ports(job: PhaseJob) -> bool:
    return bool(_dual_ports(job))


def _nic_port_share(job: PhaseJob) -> float | None:
    shares = [max(ports) / sum(ports) for ports in _dual_ports(job) if any(ports)]
    return max(shares, default=None)


JOB_KPIS = (
    Kpi(
        "completed",
        Quantity.TRUTH,
        "Completed",
        "no queue pair failed, and every byte posted was acknowledged and delivered once",
        better=Better.HIGHER,
        of_job=_is_complete,
    ),
    Kpi(
        "accounted",
        Quantity.TRUTH,
        "Counters agree",
        "switches, NICs and endpoints counted the same packets, marks and CNPs",
        better=Better.HIGHER,
        of_job=lambda job: all(check.agrees for check in job.report.accounting),
    ),
    Kpi(
        "iteration_time",
        Quantity.DURATION,
        "Time of an iteration",
        "from the end of the iteration before, of the modelled network, median",
        better=Better.LOWER,
        of_job=lambda job: job.headline("iteration_time"),
        applies=_ends,
    ),
    Kpi(
        "busbw",
        Quantity.BANDWIDTH,
        "Bus bandwidth",
        "nccl-tests' busbw of the modelled network, median of the measured iterations",
        better=Better.HIGHER,
        of_job=lambda job: job.headline("busbw"),
        applies=_is_collective,
    ),
    Kpi(
        "jct_ratio",
        Quantity.RATIO,
        "JCT ratio",
        "time of an iteration over the least that the NICs allow, median",
        better=Better.LOWER,
        of_job=lambda job: job.headline("jct_ratio"),
        applies=_ends,
    ),
    Kpi(
        "fct_p50",
        Quantity.DURATION,
        "Completion of a flow, median",
        "of flows that begin at given times: from then to the last ACK, modelled",
        better=Better.LOWER,
        of_job=attribute("report.workload.flow_times.time_ns.p50"),
        applies=_is_open_loop,
    ),
    Kpi(
        "fct_p99",
        Quantity.DURATION,
        "Completion of a flow, p99",
        "the same, 99th percentile, modelled",
        better=Better.LOWER,
        of_job=attribute("report.workload.flow_times.time_ns.p99"),
        applies=_is_open_loop,
    ),
    Kpi(
        "slowdown_p50",
        Quantity.RATIO,
        "Slowdown of a flow, median",
        "its completion time over the least: its bytes at the lowest rate of its path",
        better=Better.LOWER,
        of_job=attribute("report.workload.flow_times.slowdown.p50"),
        applies=_is_open_loop,
    ),
    Kpi(
        "slowdown_p99",
        Quantity.RATIO,
        "Slowdown of a flow, p99",
        "the same, 99th percentile",
        better=Better.LOWER,
        of_job=attribute("report.workload.flow_times.slowdown.p99"),
        applies=_is_open_loop,
    ),
    Kpi(
        "goodput",
        Quantity.BANDWIDTH,
        "Goodput",
        "payload acknowledged to all senders of streams, modelled, once all of them send",
        better=Better.HIGHER,
        of_job=lambda job: job.headline("goodput"),
        applies=_is_stream,
    ),
    Kpi(
        "dropped_packets",
        Quantity.COUNT,
        "Packets dropped",
        "did not fit the buffer of a switch port, data and control together",
        better=Better.LOWER,
        of_job=lambda job: sum(queue.dropped_packets for queue in job.report.queues),
        applies=_is_queued,
    ),
    Kpi(
        "retransmitted_packets",
        Quantity.COUNT,
        "Packets retransmitted",
        "data packets sent again after a NAK or a timeout (go-back-N)",
        better=Better.LOWER,
        of_job=attribute("report.transport.retransmitted"),
        applies=_is_roce,
        summed=True,
    ),
    Kpi(
        "naks",
        Quantity.COUNT,
        "NAKs",
        "sequence errors that receivers reported to senders",
        better=Better.LOWER,
        of_job=attribute("report.transport.naks_sent"),
        applies=_is_roce,
        summed=True,
    ),
    Kpi(
        "timeouts",
        Quantity.COUNT,
        "ACK timeouts",
        "expiries of a sender's local ACK timeout",
        better=Better.LOWER,
        of_job=attribute("report.transport.timeouts"),
        applies=_is_roce,
        summed=True,
    ),
    Kpi(
        "switch_marks",
        Quantity.COUNT,
        "CE marks by switches",
        "packets that switch ports marked",
        of_job=lambda job: sum(queue.marked for queue in job.report.queues),
        applies=_is_queued,
    ),
    Kpi(
        "marks_outside_data",
        Quantity.COUNT,
        "CE marks in other queues",
        "marks in queues of another traffic class than the data's",
        better=Better.LOWER,
        of_job=_marks_outside_data,
        applies=_is_queued,
    ),
    Kpi(
        "ce_packets",
        Quantity.COUNT,
        "CE packets received",
        "data packets that reached their receiver with a mark",
        of_job=attribute("report.transport.ce"),
        applies=_is_roce,
        summed=True,
    ),
    Kpi(
        "cnps",
        Quantity.COUNT,
        "CNPs",
        "congestion notifications that senders received",
        of_job=attribute("report.transport.cnps_received"),
        applies=_is_roce,
        summed=True,
    ),
    Kpi(
        "class_5_packets",
        Quantity.COUNT,
        "Packets in class 5",
        "entered queues of traffic class 5, that of CNPs, at all switch ports",
        of_job=lambda job: job.packets_of(CNP_CLASS),
        applies=_is_queued,
    ),
    Kpi(
        "class_6_packets",
        Quantity.COUNT,
        "Packets in class 6",
        "entered queues of traffic class 6, that of ACKs and NAKs, at all switch ports",
        of_job=lambda job: job.packets_of(ACK_CLASS),
        applies=_is_queued,
    ),
    Kpi(
        "queue_max",
        Quantity.SIZE,
        "Deepest data queue",
        "most bytes that a packet met in a switch port's queue of the data's traffic class",
        better=Better.LOWER,
        of_job=_queue_max,
        applies=_is_queued,
    ),
    *REQUEST_KPIS,
    *PAUSE_KPIS,
    Kpi(
        "rtt_p50",
        Quantity.DURATION,
        "Round trip, median",
        "data packet to ACK as the sender sees it, modelled; of TCP the kernel's smoothed ones",
        better=Better.LOWER,
        of_job=attribute("report.round_trips.p50.modelled_ns"),
    ),
    Kpi(
        "rtt_p99",
        Quantity.DURATION,
        "Round trip, p99",
        "the same, 99th percentile, modelled",
        better=Better.LOWER,
        of_job=attribute("report.round_trips.p99.modelled_ns"),
    ),
    Kpi(
        "rate_ratio",
        Quantity.RATIO,
        "Fastest over slowest sender",
        "of streams, over the second half of the time when all of them send",
        better=Better.LOWER,
        of_job=attribute("report.fairness.ratio"),
        applies=_is_stream,
    ),
    Kpi(
        "sender_jfi",
        Quantity.RATIO,
        "Jain's index of senders",
        "fairness of the same rates: 1 is even",
        better=Better.HIGHER,
        of_job=attribute("report.fairness.jfi"),
        applies=_is_stream,
    ),
    Kpi(
        "time_to_fairness",
        Quantity.DURATION,
        "Time to fair shares",
        "from the last start until every sender stays within 10 % of the mean, modelled",
        better=Better.LOWER,
        of_job=attribute("fair.lab_ns"),
        applies=_is_modelled,
    ),
    Kpi(
        "model_time_to_fairness",
        Quantity.DURATION,
        "Time to fair shares, model",
        "the same of the numerical model, median of its seeds",
        of_job=attribute("fair.model_ns"),
        applies=_is_modelled,
    ),
    Kpi(
        "time_to_fairness_ratio",
        Quantity.RATIO,
        "Lab over model",
        "time to fair shares in the lab over the model's median",
        of_job=attribute("fair.ratio"),
        applies=_is_modelled,
    ),
    Kpi(
        "jct_overhead",
        Quantity.RATIO,
        "JCT overhead of the failed iteration",
        "the iteration in which the first fault began over the median of those before, minus 1",
        better=Better.LOWER,
        of_job=attribute("report.impact.overhead"),
        applies=_is_broken,
    ),
    Kpi(
        "zero_impact",
        Quantity.TRUTH,
        "Zero impact",
        "the overhead is at most 5 %, by its 95 % bounds; not measured if the bounds do not decide",
        better=Better.HIGHER,
        of_job=attribute("report.impact.zero_impact"),
        applies=_is_broken,
    ),
    Kpi(
        "uplink_mmr",
        Quantity.RATIO,
        "Max-mean ratio, leaf uplinks",
        "busiest over mean load of all leaf uplinks, under the lab's own hashing, undisturbed",
        better=Better.LOWER,
        of_probes=lambda run: _uplinks(_undisturbed(run), "mmr"),
        of_job=lambda job: _uplinks(job.report.tiers, "mmr"),
        applies=lambda job: leaf_uplinks(job.report.tiers) is not None,
    ),
    Kpi(
        "uplink_jfi",
        Quantity.RATIO,
        "Jain's index, leaf uplinks",
        "fairness of the loads of all leaf uplinks, under the lab's own hashing, undisturbed",
        better=Better.HIGHER,
        of_probes=lambda run: _uplinks(_undisturbed(run), "jfi"),
        of_job=lambda job: _uplinks(job.report.tiers, "jfi"),
        applies=lambda job: leaf_uplinks(job.report.tiers) is not None,
    ),
    Kpi(
        "unused_links",
        Quantity.RATIO,
        "Links unused",
        "fraction of the links between switches, each direction counted separately, that carried "
        "none",
        better=Better.LOWER,
        of_job=_unused_links,
        applies=_has_links,
    ),
    Kpi(
        "nic_port_share",
        Quantity.RATIO,
        "Busier port of a NIC",
        "share of packets received at the busier of a NIC's two ports, worst NIC: 0.5 is even",
        better=Better.LOWER,
        of_job=_nic_port_share,
        applies=_has_dual_ports,
    ),
    Kpi(
        "diagnosis",
        Quantity.FINDING,
        "Diagnosis",
        "cause and subject that `rocelab diagnose` finds for each job with a size, or none",
        of_job=lambda job: job.diagnosis or None,
        applies=lambda job: job.diagnosis is not None,
    ),
)
"""The KPIs in the order in which they are shown."""
