"""What a queue's depth means, plainly: the probability of a mark, and the bin that counts it."""

from __future__ import annotations

from bisect import bisect_right

from rocelab.labfile.queues import EcnSpec
from rocelab.planning.queues import QueuePlan


def mark_probability(ecn: EcnSpec, depth_bytes: float) -> float:
    """Probability of a mark at a depth on arrival (DCQCN, SIGCOMM 2015, section 3.1).

    0 up to kmin, rising to pmax at kmax, 1 above.
    """
    if depth_bytes <= ecn.kmin:
        return 0.0
    if depth_bytes > ecn.kmax:
        return 1.0
    return ecn.pmax * (depth_bytes - ecn.kmin) / (ecn.kmax - ecn.kmin)


def bin_of(plan: QueuePlan, depth_bytes: int) -> int:
    return bisect_right(plan.bin_edges_bytes, depth_bytes) - 1
