"""Estimates before a run whether this machine can carry its jobs; after the run the guard decides.

From the plans of jobs that run at once and the number of CPUs it computes the share of the CPUs
that the jobs need, and the dilation at which they fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.base.quantities import whole_share
from rocelab.jobs.jobplan import JobPlan

PACKET_CPU_S = 20e-6
BYTE_CPU_S = 6e-6 / 1024
"""CPU time per data packet and per byte of its payload, over its whole path: sender, switches,
receiver, acknowledgement. Measured on two busy virtual CPUs: 44 us for 4 KiB over three links
on average. A further link adds 5 us."""

CARRIED_SHARE = 0.7
"""The share of all CPUs that a job may need: on that machine 52 % was carried, and 100 % was
not."""

_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Load:
    """The load of jobs on the machine: data packets per second of the lab's clock, and the share of
    all CPUs. `dilation` is a round one at which they should fit."""

    packets_per_s: float
    cpu_share: float
    dilation: float

    @property
    def fits(self) -> bool:
        return self.cpu_share <= CARRIED_SHARE


def estimate(plans: Sequence[JobPlan], cpu_count: int) -> Load:
    """The load of jobs at the rate that their busiest NICs allow, each job as if it ran alone;
    that of flows that begin at given times on average."""
    rates = [_packets(plan) for plan in plans]
    cpu_s = sum(per_s * (PACKET_CPU_S + size * BYTE_CPU_S) for per_s, size in rates)
    share = cpu_s / cpu_count
    dilation = _round_up(plans[0].dilation * share / CARRIED_SHARE)
    return Load(sum(per_s for per_s, _ in rates), share, dilation)


def _packets(plan: JobPlan) -> tuple[float, float]:
    """A job's data packets per second of the lab's clock, and their payload in bytes."""
    mtu_bytes, overhead_bytes = plan.packet_payload_bytes, plan.packet_overhead_bytes
    least_ns = plan.least_ns if plan.is_open_loop else plan.sending_ns
    if plan.over_network is not None and least_ns is not None:
        sends = plan.over_network.sends
        packets = sum(-(-send.size_bytes // mtu_bytes) for send in sends)
        payload_bytes = sum(send.size_bytes for send in sends) / packets
        return packets * 1e9 / (least_ns * plan.dilation), payload_bytes
    ends = ({s.source for s in plan.streams}, {s.destination for s in plan.streams})
    lab_bps = min(sum(plan.lab_rate_bps(rank) for rank in ranks) for ranks in ends)
    payload_bytes = float(min(mtu_bytes, plan.message_bytes))
    return lab_bps / 8 / (payload_bytes + overhead_bytes), payload_bytes


def warning(plans: Sequence[JobPlan], cpu_count: int) -> str | None:
    """The warning before a run that the machine probably cannot carry; None if it can."""
    load = estimate(plans, cpu_count)
    if load.fits:
        return None
    what = "this job is" if len(plans) == 1 else "these jobs are"
    return (
        f"at dilation {plans[0].dilation:g} {what} {load.packets_per_s:,.0f} packets/s, about "
        f"{whole_share(load.cpu_share)} of this machine's {cpu_count} CPUs; it would fit with "
        f"`--dilation {load.dilation:.0f}` of `rocelab up`, or of `rocelab drill run`"
    )


def _round_up(value: float) -> float:
    """The least 1, 2 or 5 times a power of ten that is not below `value`."""
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in _STEPS if step * scale >= value * (1 - 1e-9))
