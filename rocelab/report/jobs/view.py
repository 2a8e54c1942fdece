"""The content of every rendering of a phase of jobs, as rows of text.

The terminal and the page lay out the same rows in their own ways. Nothing is measured here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocelab.base.units import format_duration, format_size
from rocelab.planning.fabric import Direction
from rocelab.results.job import JobReport
from rocelab.results.lossless import Propagation, propagation
from rocelab.results.shares import FairShares

MOST_NAMED = 2
"""Nodes at one distance that are named."""

_LOSSY = (
    "There is no PFC: a full buffer drops, and senders retransmit from the lost packet on. "
    "On switches with PFC the same load pauses senders instead."
)
_LOSSLESS = (
    "Pauses are emulated: real frames, and gates that this machine moves when the modelled pause "
    "takes effect, as late as stated. A switch chip's cells, its own scheduling and the FEC of its "
    "links are not modelled."
)
_LIMITS = (
    "Queues, marks, CNPs and the senders' reaction are packet by packet, in bytes and times of the "
    "modelled network. Switch chips share their buffer among ports by rules that are not modelled.",
    "Round trips hold this machine's own time per packet, divided by the dilation: compare them "
    "with each other, not with a switch's latency.",
    "Sizes are scaled down: megabytes where a hardware test sends gigabytes.",
)


def limits(*, lossless: bool) -> tuple[str, ...]:
    """What the results of jobs do not tell, on a lab with or without lossless classes."""
    return (_LOSSLESS if lossless else _LOSSY, *_LIMITS)


@dataclass(frozen=True, slots=True)
class CheckRow:
    """Two counts that must agree."""

    name: str
    left: str
    right: str
    agrees: bool


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A figure of the time to fair shares, in the lab and by the model."""

    title: str
    lab: str
    model: str


def job_name(phase: str, number: int, jobs: int) -> str:
    """The name of a job: the phase's if it is the only one; numbered from 1."""
    return phase if jobs == 1 else f"{phase}, job {number}"


def job_text(job: dict[str, Any]) -> str:
    """`incast, 4 ranks, 4MB; DCQCN hpcc-dcqcn, ECN ect0, DSCP 26`."""
    transport = job["transport"]
    length = job.get("size") or f"for {job['duration']}"
    starts = job.get("starts", [])
    staggered = f", starts at {', '.join(starts)}" if len(starts) > 1 else ""
    algorithm = f" ({job['algorithm']})" if job["pattern"] == "allreduce" else ""
    return (
        f"{job['pattern']}{algorithm}, {job['ranks']} ranks, {length}{staggered}; "
        f"DCQCN {transport['dcqcn']}, ECN {transport['ecn']}, DSCP {transport['dscp']} "
        f"(ACKs {transport['ack_dscp']}, CNPs {transport['cnp_dscp']}), "
        f"{transport['qps']} QP per connection, window {transport['window']}"
    )


def check_rows(report: JobReport) -> list[CheckRow]:
    """The comparisons of devices and endpoints."""
    return [
        CheckRow(
            check.name,
            f"{check.left} {check.left_count:,}",
            f"{check.right} {check.right_count:,}",
            check.agrees,
        )
        for check in report.accounting
    ]


def link_rows(report: JobReport) -> list[tuple[str, str, str, str]]:
    """Links between switches that carried the job: name, direction, packets, share of the tier."""
    return [
        (
            link.link,
            "up" if link.direction is Direction.UP else "down",
            f"{link.packets:,}",
            "" if link.share is None else f"{link.share:.1%}",
        )
        for link in report.links
        if link.packets and not link.tier.startswith("server")
    ]


def queue_rows(report: JobReport) -> list[tuple[str, ...]]:
    """Queues that marked or dropped, or held the most, the deepest first."""
    ordered = sorted(report.queues, key=lambda queue: -(queue.depth_max_bytes or 0))
    return [
        (
            f"{queue.node}:{queue.interface}",
            str(queue.traffic_class),
            f"{queue.packets:,}",
            f"{queue.marked:,}",
            f"{queue.dropped_packets:,}",
            "" if queue.depth_max_bytes is None else f"{queue.depth_max_bytes / 1000:,.0f} KB",
        )
        for queue in ordered[:12]
    ]


def pause_rows(report: JobReport) -> list[tuple[str, ...]]:
    """Ports that were paused, or dropped of a lossless class, those that waited most first: port,
    class, who asked, how often, time in all and at once, most of the headroom, drops, watchdog."""
    if report.lossless is None:
        return []
    dilation = report.clock.dilation
    ports = [
        port
        for port in report.lossless.ports
        if port.transitions or port.dropped_packets or port.watchdog
    ]
    return [
        (
            f"{port.node}:{port.interface}",
            str(port.traffic_class),
            port.peer,
            f"{port.transitions:,}",
            format_duration(port.paused_ns / dilation),
            format_duration(port.longest_ns / dilation),
            format_size(port.headroom_max_bytes),
            f"{port.dropped_packets:,}",
            f"{port.watchdog:,}",
        )
        for port in sorted(ports, key=lambda port: -port.paused_ns)
    ]


def propagation_rows(report: JobReport) -> list[tuple[str, ...]]:
    """The nodes that pauses spread from, the most costly first: the node, class, time that others
    stopped, and each of these with its distance."""
    if report.lossless is None:
        return []
    rows: list[tuple[str, ...]] = []
    lossless = report.lossless
    for origin in propagation(lossless.spans, lossless.servers, report.fidelity.elapsed_ns):
        rows.append(
            (
                origin.root,
                str(origin.traffic_class),
                format_duration(origin.total_ns / report.clock.dilation),
                by_distance(origin),
            )
        )
    return rows


def by_distance(found: Propagation) -> str:
    """`1: rtsw2; 2: ctsw1, srv2-3 and 4 more`."""
    texts = []
    for depth in sorted(set(found.depth.values())):
        nodes = [node for node in found.depth if found.depth[node] == depth]
        nodes.sort(key=lambda node: -found.waited_ns[node])
        more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
        texts.append(f"{depth}: {', '.join(nodes[:MOST_NAMED])}{more}")
    return "; ".join(texts)


def lossless_text(report: JobReport) -> str:
    """One sentence about a job's lossless classes, empty without any."""
    found = report.lossless
    if found is None:
        return ""
    text = (
        f"Lossless: {found.transitions:,} pauses, {found.dropped:,} packets dropped of "
        f"{found.packets:,}, {found.dropped + found.late:,} if late packets counted"
    )
    if found.part:
        text += f". Origins of pauses cover {found.part}"
    if found.late_p99_ns is None or found.late_p50_ns is None:
        return f"{text}."
    nics = found.nics_late_p99_ns
    of_nics = "" if nics is None else f", of NICs {nics / 1000:,.0f} us"
    return (
        f"{text}. Pauses took effect {found.late_p50_ns / 1000:,.0f} us after they were due "
        f"(p99 {found.late_p99_ns / 1000:,.0f} us{of_nics}) in the lab's clock, where the modelled "
        f"delay is {found.delay_ns / 1000:,.0f} us."
    )


def share_rows(fair: FairShares) -> list[ShareRow]:
    """A row per figure, lab and model."""
    seeds = [_duration(time) for time in fair.model_times_ns]
    return [
        ShareRow(
            "from the last start to fair shares",
            _duration(fair.lab_ns),
            f"{_duration(fair.model_ns)} (seeds: {', '.join(seeds)})",
        ),
        ShareRow(
            "use of the port, settled",
            f"{fair.lab_settled.use:.1%}",
            f"{fair.model_settled.use:.1%}",
        ),
        ShareRow(
            "mean queue, settled",
            _kilobytes(fair.lab_settled.queue_bytes),
            _kilobytes(fair.model_settled.queue_bytes),
        ),
    ]


def _duration(time_ns: float | None) -> str:
    return "not reached" if time_ns is None else format_duration(time_ns)


def _kilobytes(size: float | None) -> str:
    return "not sampled" if size is None else f"{size / 1000:,.0f} KB"
