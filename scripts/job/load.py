"""Can this machine carry a job? An estimate before the run; the guard decides after it.

In: a `JobPlan` and how many CPUs there are. Out: the share of them that the job would need, and the
dilation at which it would fit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from traffic.jobplan import JobPlan
from traffic.nic import WIRE_OVERHEAD_BYTES
from traffic.performance import FRAME_OVERHEAD_BYTES, roofline_ns

PACKET_CPU_S = 20e-6
BYTE_CPU_S = 6e-6 / 1024
"""CPU time per data packet and per byte of its payload, on every part of its way: sender, switches,
receiver, acknowledgement. Measured on two virtual CPUs, both busy: 44 us for 4 KiB over three links
on average. A further link adds 5 us."""

CARRIED_SHARE = 0.7
"""Of all CPUs: 52 % was carried there, and 100 % was not."""

_STEPS = (1, 2, 5, 10)


@dataclass(frozen=True, slots=True)
class Load:
    """What a job asks of the machine: data packets per second of the lab's clock, and the share of
    all CPUs. `dilation` is a round one at which it should fit."""

    packets_per_s: float
    cpu_share: float
    dilation: float

    @property
    def fits(self) -> bool:
        return self.cpu_share <= CARRIED_SHARE


def estimate(plan: JobPlan, cpu_count: int) -> Load:
    """The load of a job at the rate its busiest NICs allow."""
    transport = plan.job.transport
    overhead_bytes = FRAME_OVERHEAD_BYTES + WIRE_OVERHEAD_BYTES
    if plan.schedule is not None:
        packets = sum(-(-send.size_bytes // transport.mtu) for send in plan.schedule.sends)
        rate_bps = max(plan.nic_link(rank).rate_bps for rank in range(plan.job.ranks))
        least_ns = roofline_ns(
            plan.schedule, rate_bps, mtu_bytes=transport.mtu, overhead_bytes=overhead_bytes
        )
        per_s = packets * 1e9 / (least_ns * plan.dilation)
        payload_bytes = sum(send.size_bytes for send in plan.schedule.sends) / packets
    else:
        ends = ({s.source for s in plan.streams}, {s.destination for s in plan.streams})
        lab_bps = min(sum(plan.lab_rate_bps(rank) for rank in ranks) for ranks in ends)
        payload_bytes = float(min(transport.mtu, plan.message_bytes))
        per_s = lab_bps / 8 / (payload_bytes + overhead_bytes)
    share = per_s * (PACKET_CPU_S + payload_bytes * BYTE_CPU_S) / cpu_count
    return Load(per_s, share, _round_up(plan.dilation * share / CARRIED_SHARE))


def warning(plan: JobPlan, cpu_count: int) -> str | None:
    """What to say before a run that will probably not be carried, None where it should be."""
    load = estimate(plan, cpu_count)
    if load.fits:
        return None
    return (
        f"at dilation {plan.dilation:g} this job is {load.packets_per_s:,.0f} packets/s, about "
        f"{load.cpu_share:.0%} of this machine's {cpu_count} CPUs; `dilation: {load.dilation:.0f}` "
        "in the lab's file would fit"
    )


def _round_up(value: float) -> float:
    """1, 2 or 5 times a power of ten, the next that is not below `value`."""
    scale = 10.0 ** math.floor(math.log10(value))
    return next(step * scale for step in _STEPS if step * scale >= value * (1 - 1e-9))
