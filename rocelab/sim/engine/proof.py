"""Proves that rates are max-min fair, independently of how they were computed.

By the bottleneck theorem (Bertsekas and Gallager, Data Networks, 6.5.2) rates are max-min fair
exactly if no capacity is exceeded and every transfer has a bottleneck: a full send on which none is
faster.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rocelab.base.arrays import Floats, Ints
from rocelab.routes.arrays.flows import Paths

TOLERANCE = 1e-9


class NotFairError(ArithmeticError):
    """Rates are not max-min fair: a defect of the solver."""


@dataclass(frozen=True, slots=True)
class Proof:
    """full_sends: how many sends have no capacity left. widest_gap: over all transfers, the largest
    relative gap at a transfer's best bottleneck: of its rate below the fastest, or of the send's
    load below its capacity; at most 1e-9."""

    transfers: int
    full_sends: int
    widest_gap: float


def prove(paths: Paths, capacity_bps: Floats, rates_bps: Floats, flow: Ints | None = None) -> Proof:
    """Check the rates of transfers; transfer i takes the path of flow[i] (None: one for each flow).

    Raises NotFairError for an exceeded capacity, a transfer without a bottleneck, a rate that is
    negative or NaN, or a rate without a path; relative tolerance 1e-9.
    """
    if not np.all(rates_bps >= 0) or not np.all(np.isfinite(rates_bps)):
        raise NotFairError("a rate is negative or not finite")
    flows = len(paths)
    taken = np.arange(flows) if flow is None else np.asarray(flow, np.int64)
    lengths = np.diff(paths.start)
    homeless = np.flatnonzero((lengths[taken] == 0) & (rates_bps > 0))
    if len(homeless):
        raise NotFairError(f"transfer {homeless[0]} has a rate but no path")
    owner = np.repeat(np.arange(flows), lengths)
    share = np.ones(len(owner)) if paths.share is None else paths.share
    sum_of_flow = np.bincount(taken, rates_bps, flows)
    most_of_flow = np.zeros(flows)
    np.maximum.at(most_of_flow, taken, rates_bps)
    sends = len(capacity_bps)
    load = np.bincount(paths.sends, sum_of_flow[owner] * share, sends)
    over = load > capacity_bps * (1 + TOLERANCE)
    if over.any():
        send = int(np.argmax(over))
        raise NotFairError(f"send {send} carries {load[send]} of {capacity_bps[send]} bit/s")
    fastest = np.zeros(sends)
    np.maximum.at(fastest, paths.sends, most_of_flow[owner])
    unused = 1 - np.divide(load, capacity_bps, out=np.ones(sends), where=capacity_bps > 0)
    gap = np.full(len(taken), np.inf)
    for place in range(int(lengths.max(initial=0))):
        rows = np.flatnonzero(lengths[taken] > place)
        passed = paths.sends[paths.start[taken[rows]] + place]
        most = fastest[passed]
        behind = 1 - np.divide(rates_bps[rows], most, out=np.ones(len(rows)), where=most > 0)
        gap[rows] = np.minimum(gap[rows], np.maximum(unused[passed], behind))
    gap[lengths[taken] == 0] = 0
    if np.any(gap > TOLERANCE):
        worst = int(np.argmax(gap))
        raise NotFairError(
            f"transfer {worst} at {rates_bps[worst]} bit/s has no bottleneck: each send of its "
            f"path has capacity left or a faster transfer, by a part of {gap[worst]:.3g} at least"
        )
    return Proof(
        transfers=len(taken),
        full_sends=int(np.count_nonzero(unused <= TOLERANCE)),
        widest_gap=float(gap.max(initial=0.0)),
    )
