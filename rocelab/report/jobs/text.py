"""Jobs in words: their names, what they send, how their pauses spread, what they do not tell."""

from __future__ import annotations

from typing import Any

from rocelab.base.quantities import duration
from rocelab.base.wording import counted
from rocelab.jobs.job_spec import KINDS
from rocelab.results.job import JobReport
from rocelab.results.lossless import Propagation

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


def job_name(phase: str, number: int, jobs: int) -> str:
    """The name of a job: the phase's if it is the only one; numbered from 1."""
    return phase if jobs == 1 else f"{phase}, job {number}"


def job_text(job: dict[str, Any]) -> str:
    """`incast, 4 ranks, 4MB; DCQCN hpcc-dcqcn, ECN ect0, DSCP 26`; `4MB in frontend` if it names
    its network."""
    network = job.get("network")
    where = "" if network is None else f" in {network}"
    sending = _sending(job["transport"])
    if "pattern" not in job:
        kind = next(kind for kind in KINDS if kind in job)
        return f"{kind} {job['name']}{where}; {sending}"
    length = job.get("size") or f"for {job['duration']}"
    starts = job.get("starts", [])
    staggered = f", starts at {', '.join(starts)}" if len(starts) > 1 else ""
    # Without one in the file it is chosen when the job is planned.
    name = job.get("algorithm") if job["pattern"] == "allreduce" else None
    algorithm = f" ({name})" if name else ""
    return (
        f"{job['pattern']}{algorithm}, {job['ranks']} ranks, {length}{staggered}{where}; {sending}"
    )


def _sending(transport: dict[str, Any]) -> str:
    if transport.get("kind") == "tcp":
        control = transport.get("congestion_control") or "cubic"
        number = transport.get("connections")
        lines = f", {counted(number, 'connection')} from rank to rank" if number else ""
        return f"TCP ({control}){lines}, DSCP {transport['dscp']}"
    return (
        f"DCQCN {transport['dcqcn']}, ECN {transport['ecn']}, DSCP {transport['dscp']} "
        f"(ACKs {transport['ack_dscp']}, CNPs {transport['cnp_dscp']}), "
        f"{transport['qps']} QP per connection, window {transport['window']}"
    )


def by_distance(propagation: Propagation) -> str:
    """`1: rtsw2; 2: ctsw1, srv2-3 and 4 more`."""
    texts = []
    for depth in sorted(set(propagation.depth.values())):
        nodes = [node for node in propagation.depth if propagation.depth[node] == depth]
        nodes.sort(key=lambda node: -propagation.waited_ns[node])
        more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
        texts.append(f"{depth}: {', '.join(nodes[:MOST_NAMED])}{more}")
    return "; ".join(texts)


def lossless_text(report: JobReport) -> str:
    """One sentence about a job's lossless classes, empty without any."""
    lossless = report.lossless
    if lossless is None:
        return ""
    text = (
        f"Lossless: {counted(lossless.transitions, 'pause')}, "
        f"{counted(lossless.dropped, 'packet')} dropped of {lossless.packets:,}"
    )
    if lossless.late:
        text += f", {lossless.late:,} more admitted only because this machine paused late"
    if lossless.part:
        text += f". Origins of pauses cover {lossless.part}"
    if lossless.late_p99_ns is None or lossless.late_p50_ns is None:
        return f"{text}."
    nics = lossless.nics_late_p99_ns
    of_nics = "" if nics is None else f", of NICs {duration(nics)}"
    return (
        f"{text}. Pauses took effect {duration(lossless.late_p50_ns)} after they were due (p99 "
        f"{duration(lossless.late_p99_ns)}{of_nics}) in the lab's clock, where the modelled "
        f"delay is {duration(lossless.delay_ns)}."
    )
