"""What every rendering of a phase of jobs shows, as rows of text.

In: the reports of its jobs. Out: rows that the terminal and the page lay out in their own ways, so
that both say the same in the same words. Nothing is measured here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocelab.plan.fabric import Direction
from rocelab.results.job import JobReport
from rocelab.results.shares import FairShares
from rocelab.units import format_duration

LIMITS = (
    "There is no PFC: a full buffer drops, and what is lost is sent again from the lost packet on. "
    "On switches with PFC the same load pauses senders instead.",
    "Queues, marks, CNPs and the senders' reaction are packet by packet, in bytes and times of the "
    "modelled network. Switch chips share their buffer among ports by rules that are not modelled.",
    "Round trips hold this machine's own time per packet, divided by the dilation: compare them "
    "with each other, not with a switch's latency.",
    "Sizes are scaled down: megabytes where a hardware test sends gigabytes.",
)


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
    """How a job of a phase is called: by the phase where it is the only one; from 1 on."""
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
    """Where devices and endpoints are compared."""
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


def share_rows(fair: FairShares) -> list[ShareRow]:
    """Lab and model, figure by figure."""
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
