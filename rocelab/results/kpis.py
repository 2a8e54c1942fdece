"""The KPIs of drills: their meaning, unit, better direction, and how they are read.

They come from a `ProbeRun`, or from the `JobReport` of each concurrent job and, if the phase was
modelled, its `FairShares`. The result has a value for each applicable KPI, None if not measured; a
KPI that does not apply (a stream has no busbw) is missing. Nothing is measured here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from rocelab.forwarding.balance import TierBalance, leaf_uplinks
from rocelab.jobs.job import JobSpec
from rocelab.jobs.placement import nic_of, reference
from rocelab.plan.build import build_fabric
from rocelab.plan.fabric import Direction, Fabric
from rocelab.plan.queues import class_of_dscp
from rocelab.results.job import JobReport
from rocelab.results.lossless import find_deadlock, root_share, traced
from rocelab.results.probes import ProbeRun
from rocelab.results.shares import FairShares
from rocelab.spec.adopted import recorded_spec
from rocelab.units import format_duration

KpiValue = int | float | bool | None
Figures = Mapping[str, KpiValue]
"""The KPIs of one run by name, without those that do not apply."""

CNP_CLASS, ACK_CLASS = 5, 6
"""The traffic class of CNPs and ACKs in the kit's default map."""

BYTES_PER_GB_BITS = 8e9


class Quantity(StrEnum):
    """The quantity of a KPI: durations are nanoseconds, counts whole numbers, sizes bytes,
    bandwidths GB/s (10^9 bytes)."""

    DURATION = "duration"
    COUNT = "count"
    SIZE = "size"
    BANDWIDTH = "bandwidth"
    RATIO = "ratio"
    TRUTH = "truth"


UNITS = {
    Quantity.DURATION: "ns",
    Quantity.COUNT: "count",
    Quantity.SIZE: "bytes",
    Quantity.BANDWIDTH: "GB/s",
    Quantity.RATIO: "ratio",
    Quantity.TRUTH: "truth",
}
"""How documents name the unit of a KPI; a truth is 0 or 1 in figures."""


class Better(StrEnum):
    """Which way a figure improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class PhaseJob:
    """A job of a phase, the input of its figures. `has_model`: whether the phase has a model;
    `fair`: what it says, None if it could not be compared; data_classes: the traffic classes of the
    data of all jobs of the phase; receivers: the NICs that receive data in any of them."""

    report: JobReport
    has_model: bool
    fair: FairShares | None
    data_classes: frozenset[int]
    receivers: frozenset[str]

    @cached_property
    def spec(self) -> JobSpec:
        return JobSpec.model_validate(self.report.job)

    @cached_property
    def fabric(self) -> Fabric:
        return build_fabric(recorded_spec(self.report.lab))

    def headline(self, name: str) -> float | None:
        """The median of a headline; None if the job has none of that name."""
        found = (
            headline.modelled.median for headline in self.report.headlines if headline.name == name
        )
        return next(found, None)

    def packets_of(self, traffic_class: int) -> int:
        """Packets that entered queues of a traffic class."""
        queues = self.report.queues
        return sum(queue.packets for queue in queues if queue.traffic_class == traffic_class)


def _always(job: PhaseJob) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Kpi:
    """A figure that a drill reports and for which a drill file may state an expectation.

    better: None if neither direction is. of_probes, of_job: how it is read from a run of probes or
    a job, None if it has none; `applies` says to which jobs it applies. summed: endpoints count it,
    and a phase's value is the sum over its jobs.
    """

    name: str
    quantity: Quantity
    title: str
    meaning: str
    better: Better | None = None
    of_probes: Callable[[ProbeRun], KpiValue] | None = None
    of_job: Callable[[PhaseJob], KpiValue] | None = None
    applies: Callable[[PhaseJob], bool] = _always
    summed: bool = False


def _read(path: str) -> Callable[[PhaseJob], KpiValue]:
    """Reads a dotted attribute of a job; None if a part of the path is None."""

    def read(job: PhaseJob) -> KpiValue:
        found: Any = job
        for name in path.split("."):
            found = None if found is None else getattr(found, name)
        value: KpiValue = found
        return value

    return read


def _is_collective(job: PhaseJob) -> bool:
    return job.spec.size is not None


def _is_stream(job: PhaseJob) -> bool:
    return job.spec.duration is not None


def _is_queued(job: PhaseJob) -> bool:
    return job.report.queue_engine != "off"


def _is_modelled(job: PhaseJob) -> bool:
    # Results of earlier versions do not say that a phase has a model.
    return job.has_model or job.fair is not None


def _is_broken(job: PhaseJob) -> bool:
    return any(event.change == "begin" for event in job.report.events)


def _is_complete(job: PhaseJob) -> bool:
    moved = job.report.transport
    return (
        not job.report.errors and moved.posted_bytes == moved.acked_bytes == moved.delivered_bytes
    )


def _goodput(job: PhaseJob) -> float | None:
    goodput_bps = job.headline("goodput")
    return None if goodput_bps is None else goodput_bps / BYTES_PER_GB_BITS


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


def _is_lossless(job: PhaseJob) -> bool:
    return job.report.lossless is not None


def _pause_share(job: PhaseJob) -> float | None:
    lossless = job.report.lossless
    elapsed_ns = job.report.fidelity.elapsed_ns
    if lossless is None or not elapsed_ns or lossless.spans_left_out:
        return None
    paused_ns: Counter[tuple[str, str, int]] = Counter()
    for span in lossless.spans:
        # Queues drain after the run, and may be paused while they do.
        ended_ns = min(elapsed_ns, span.begin_ns + span.length_ns(elapsed_ns))
        place = (span.node, span.interface, span.traffic_class)
        paused_ns[place] += max(0, ended_ns - max(0, span.begin_ns))
    return max(paused_ns.values(), default=0) / elapsed_ns


def _incast_share(job: PhaseJob) -> float | None:
    lossless = job.report.lossless
    assert lossless is not None
    nics = [nic_of(job.fabric, reference(name)) for name in job.receivers]
    switches = {link.b.node for nic in nics for link in nic.links}
    return root_share(lossless.spans, lossless.servers, job.report.fidelity.elapsed_ns, switches)


def _pause_depth(job: PhaseJob) -> int:
    lossless = job.report.lossless
    assert lossless is not None
    return max((pause.depth for pause in traced(lossless.spans, lossless.servers)), default=0)


def _is_deadlocked(job: PhaseJob) -> bool:
    lossless = job.report.lossless
    assert lossless is not None
    return bool(find_deadlock(lossless.spans))


def _undisturbed(run: ProbeRun) -> list[TierBalance]:
    return [tier for each in run.hashing if each.own for tier in each.tiers]


def _uplinks(tiers: Iterable[TierBalance], figure: str) -> float | None:
    """`mmr` or `jfi` of all leaf uplinks."""
    uplinks = leaf_uplinks(tiers)
    value: float | None = None if uplinks is None else getattr(uplinks, figure)
    return value


def _carried(job: PhaseJob) -> list[bool]:
    """Whether each link between switches, in each direction, carried a packet."""
    inside = {link.name for link in job.fabric.trunks}
    return [bool(each.packets) for each in job.report.links if each.link in inside]


def _has_links(job: PhaseJob) -> bool:
    return bool(_carried(job))


def _unused_links(job: PhaseJob) -> float | None:
    carried = _carried(job)
    return carried.count(False) / len(carried) if any(carried) else None


def _dual_ports(job: PhaseJob) -> list[list[int]]:
    """Packets received by each port of every NIC that has several."""
    received = {
        each.link: each.packets for each in job.report.links if each.direction is Direction.DOWN
    }
    return [
        [received.get(link.name, 0) for link in nic.links]
        for server in job.fabric.servers
        for nic in job.fabric.nics(server.name)
        if len(nic.links) > 1
    ]


def _has_dual_ports(job: PhaseJob) -> bool:
    return bool(_dual_ports(job))


def _nic_port_share(job: PhaseJob) -> float | None:
    shares = [max(ports) / sum(ports) for ports in _dual_ports(job) if any(ports)]
    return max(shares, default=None)


KPIS: dict[str, Kpi] = {
    kpi.name: kpi
    for kpi in (
        Kpi(
            "restored",
            Quantity.TRUTH,
            "Restored",
            "every affected flow recovered, and no flow ended in an outage",
            better=Better.HIGHER,
            of_probes=lambda run: run.overall.restored,
        ),
        Kpi(
            "full_convergence",
            Quantity.DURATION,
            "Full convergence",
            "event to recovery of the last affected flow (RFC 6412 section 3.6.1), worst event",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.full_convergence_ns,
        ),
        Kpi(
            "first_route_convergence",
            Quantity.DURATION,
            "First route convergence",
            "event to recovery of the first affected flow (RFC 6412 section 3.6.2), worst event",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.first_route_convergence_ns,
        ),
        Kpi(
            "loss_derived_convergence",
            Quantity.DURATION,
            "Loss-derived convergence",
            "packets lost over the rate offered to the affected flows (RFC 6412 section 3.6.4)",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.loss_derived_ns,
        ),
        Kpi(
            "rate_derived_convergence",
            Quantity.DURATION,
            "Rate-derived convergence",
            "event until throughput is back and stays (RFC 6412 section 3.5.1), last affected flow",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.rate_derived_ns,
        ),
        Kpi(
            "loss_of_connectivity",
            Quantity.DURATION,
            "Longest loss of connectivity",
            "longest Route Loss of Connectivity Period of any flow (RFC 6412 section 3.6.5)",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.loss_of_connectivity_ns,
        ),
        Kpi(
            "affected_flows",
            Quantity.COUNT,
            "Flows affected",
            "flows that lost packets to an event",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.affected_flows,
        ),
        Kpi(
            "lost_packets",
            Quantity.COUNT,
            "Packets lost",
            "sent and never received",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.lost,
        ),
        Kpi(
            "lost_outside_events",
            Quantity.COUNT,
            "Lost outside events",
            "packets lost at times that no event accounts for",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.lost_outside_events,
        ),
        Kpi(
            "reordered_packets",
            Quantity.COUNT,
            "Packets reordered",
            "arrived after a packet sent later (RFC 4737 section 3.3)",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.reordered,
        ),
        Kpi(
            "duplicated_packets",
            Quantity.COUNT,
            "Packets duplicated",
            "further copies of packets that had arrived (RFC 5560)",
            better=Better.LOWER,
            of_probes=lambda run: run.overall.duplicated,
        ),
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
            applies=_is_collective,
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
            applies=_is_collective,
        ),
        Kpi(
            "goodput",
            Quantity.BANDWIDTH,
            "Goodput",
            "payload acknowledged to all senders of streams, modelled, once all of them send",
            better=Better.HIGHER,
            of_job=_goodput,
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
            of_job=lambda job: job.report.transport.retransmitted,
            summed=True,
        ),
        Kpi(
            "naks",
            Quantity.COUNT,
            "NAKs",
            "sequence errors that receivers told senders",
            better=Better.LOWER,
            of_job=lambda job: job.report.transport.naks_sent,
            summed=True,
        ),
        Kpi(
            "timeouts",
            Quantity.COUNT,
            "ACK timeouts",
            "times that a sender waited for an ACK in vain (local ACK timeout)",
            better=Better.LOWER,
            of_job=lambda job: job.report.transport.timeouts,
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
            of_job=lambda job: job.report.transport.ce,
            summed=True,
        ),
        Kpi(
            "cnps",
            Quantity.COUNT,
            "CNPs",
            "congestion notifications that senders received",
            of_job=lambda job: job.report.transport.cnps_received,
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
        Kpi(
            "pauses",
            Quantity.COUNT,
            "Pauses",
            "times that a port of a switch or NIC stopped because its peer paused it (PFC)",
            of_job=_read("report.lossless.transitions"),
            applies=_is_lossless,
        ),
        Kpi(
            "pause_share",
            Quantity.RATIO,
            "Longest-paused port",
            "share of the run in which the port that waited most was paused",
            better=Better.LOWER,
            of_job=_pause_share,
            applies=_is_lossless,
        ),
        Kpi(
            "incast_share",
            Quantity.RATIO,
            "Paused by incasts",
            "of the time that all ports were paused, the share that began at the switch in front "
            "of a NIC that receives, whose own ports nobody had paused",
            of_job=_incast_share,
            applies=_is_lossless,
        ),
        Kpi(
            "pause_depth",
            Quantity.COUNT,
            "Farthest pause",
            "cables between the node at which pauses began and the farthest port that they stopped",
            better=Better.LOWER,
            of_job=_pause_depth,
            applies=_is_lossless,
        ),
        Kpi(
            "deadlock",
            Quantity.TRUTH,
            "Deadlock",
            "when all senders had stopped, ports were still paused that wait for each other in a "
            "ring",
            better=Better.LOWER,
            of_job=_is_deadlocked,
            applies=_is_lossless,
        ),
        Kpi(
            "lossless_drops",
            Quantity.COUNT,
            "Drops of lossless classes",
            "packets that found no room beyond the headroom or in a NIC's receive buffer",
            better=Better.LOWER,
            of_job=_read("report.lossless.dropped"),
            applies=_is_lossless,
        ),
        Kpi(
            "watchdog_events",
            Quantity.COUNT,
            "PFC watchdog events",
            "times that a watchdog freed a queue that pauses had held too long",
            better=Better.LOWER,
            of_job=_read("report.lossless.watchdog"),
            applies=_is_lossless,
        ),
        Kpi(
            "rtt_p50",
            Quantity.DURATION,
            "Round trip, median",
            "data packet to ACK as the sender sees it, modelled",
            better=Better.LOWER,
            of_job=_read("report.round_trips.p50.modelled_ns"),
        ),
        Kpi(
            "rtt_p99",
            Quantity.DURATION,
            "Round trip, p99",
            "the same, 99th percentile, modelled",
            better=Better.LOWER,
            of_job=_read("report.round_trips.p99.modelled_ns"),
        ),
        Kpi(
            "rate_ratio",
            Quantity.RATIO,
            "Fastest over slowest sender",
            "of streams, over the second half of the time when all of them send",
            better=Better.LOWER,
            of_job=_read("report.fairness.ratio"),
            applies=_is_stream,
        ),
        Kpi(
            "sender_jfi",
            Quantity.RATIO,
            "Jain's index of senders",
            "fairness of the same rates: 1 is even",
            better=Better.HIGHER,
            of_job=_read("report.fairness.jfi"),
            applies=_is_stream,
        ),
        Kpi(
            "time_to_fairness",
            Quantity.DURATION,
            "Time to fair shares",
            "from the last start until every sender stays within 10 % of the mean, modelled",
            better=Better.LOWER,
            of_job=_read("fair.lab_ns"),
            applies=_is_modelled,
        ),
        Kpi(
            "model_time_to_fairness",
            Quantity.DURATION,
            "Time to fair shares, model",
            "the same of the numerical model, median of its seeds",
            of_job=_read("fair.model_ns"),
            applies=_is_modelled,
        ),
        Kpi(
            "time_to_fairness_ratio",
            Quantity.RATIO,
            "Lab over model",
            "time to fair shares in the lab over the model's median",
            of_job=_read("fair.ratio"),
            applies=_is_modelled,
        ),
        Kpi(
            "jct_overhead",
            Quantity.RATIO,
            "JCT overhead of the failed iteration",
            "the iteration in which the first fault began over the median of those before, less 1",
            better=Better.LOWER,
            of_job=_read("report.impact.overhead"),
            applies=_is_broken,
        ),
        Kpi(
            "zero_impact",
            Quantity.TRUTH,
            "Zero impact",
            "the overhead is at most 5 %, by its 95 % bounds; not measured where those do not tell",
            better=Better.HIGHER,
            of_job=_read("report.impact.zero_impact"),
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
            "fraction of the links between switches, each direction by itself, that carried none",
            better=Better.LOWER,
            of_job=_unused_links,
            applies=_has_links,
        ),
        Kpi(
            "nic_port_share",
            Quantity.RATIO,
            "Busier port of a NIC",
            "share of packets that came in by a NIC's busier port of two, worst NIC: 0.5 is even",
            better=Better.LOWER,
            of_job=_nic_port_share,
            applies=_has_dual_ports,
        ),
    )
}
"""Every figure by its name, in the order in which they are shown."""


def probe_figures(run: ProbeRun) -> Figures:
    """The KPIs of a run of probes."""
    return {kpi.name: kpi.of_probes(run) for kpi in KPIS.values() if kpi.of_probes is not None}


def job_figures(
    reports: Sequence[JobReport], *, has_model: bool = False, fair: FairShares | None = None
) -> tuple[Figures, ...]:
    """The KPIs of each job of a phase. Counts of devices cover all jobs and are the same for
    each."""
    classes = frozenset(map(data_class, reports))
    ranks = [rank for report in reports for rank in report.ranks]
    receivers = frozenset(rank.nic for rank in ranks if rank.delivered_bytes)
    jobs = [PhaseJob(report, has_model, fair, classes, receivers) for report in reports]
    return tuple(
        {
            kpi.name: kpi.of_job(job)
            for kpi in KPIS.values()
            if kpi.of_job is not None and kpi.applies(job)
        }
        for job in jobs
    )


def phase_figures(jobs: Sequence[Figures]) -> tuple[Figures, ...]:
    """The figures that a phase's expectations are compared with, one set per job: the counts summed
    over all jobs, and every other applicable figure of the job, measured or not."""
    found: list[dict[str, KpiValue]] = [{} for _ in jobs]
    for kpi in KPIS.values():
        values = [figures[kpi.name] for figures in jobs if kpi.name in figures]
        if kpi.summed and values:
            values = [sum(value or 0 for value in values)]
        for place, figures in enumerate(found if values else ()):
            figures[kpi.name] = values[min(place, len(values) - 1)]
    return tuple(found)


def data_class(report: JobReport) -> int:
    """The traffic class of the job's data in its lab."""
    lab = recorded_spec(report.lab)
    dscp = JobSpec.model_validate(report.job).transport.dscp
    return class_of_dscp(lab.queues.dscp)[dscp]


def format_kpi(kpi: str, value: KpiValue, resolution_ns: float = 0.0) -> str:
    """`value` as text in the unit of `kpi`; `not measured` for None. A time not above
    `resolution_ns` is shown as below it."""
    if value is None:
        return "not measured"
    if KPIS[kpi].quantity is Quantity.DURATION and value <= resolution_ns:
        return f"< {format_duration(resolution_ns)}"
    match KPIS[kpi].quantity:
        case Quantity.DURATION:
            return format_duration(float(value))
        case Quantity.COUNT:
            return f"{value:,.0f}"
        case Quantity.SIZE:
            return f"{value / 1000:,.0f} KB"
        case Quantity.BANDWIDTH:
            return f"{value:.3g} GB/s"
        case Quantity.RATIO:
            return f"{value:.3g}"
        case Quantity.TRUTH:
            return "yes" if value else "no"
