"""Max-min fair rates with numpy alone, in rounds.

In a round every send whose share is the least on the paths of its flows becomes their bottleneck.
There are as many rounds as the longest chain of bottlenecks that depend on one another.
"""

from __future__ import annotations

import numpy as np

from rocelab.arrays import Floats, Ints
from rocelab.sim.fabric.flows import Paths

NOISE = 1.0 + 1e-13


def rates_in_rounds(paths: Paths, capacity_bps: Floats, transfers: Ints) -> Floats:
    """The rate of one transfer of each flow that has any; 0 for other flows."""
    rates = np.zeros(len(paths))
    lengths = np.diff(paths.start)
    owner = np.repeat(np.arange(len(paths)), lengths)
    kept = transfers[owner] > 0
    owner, send = owner[kept], paths.sends[kept]
    weight = transfers[owner].astype(np.float64)
    if paths.share is not None:
        weight *= paths.share[kept]
    sends = len(capacity_bps)
    carried = np.zeros(sends)
    while len(owner):
        open_weight = np.bincount(send, weight, sends)
        left = np.maximum(capacity_bps - carried, 0)
        share = np.divide(left, open_weight, out=np.full(sends, np.inf), where=open_weight > 0)
        met = share[send]
        starts = np.flatnonzero(np.r_[True, owner[1:] != owner[:-1]])
        least = np.minimum.reduceat(met, starts)
        spread = np.repeat(least, np.diff(np.r_[starts, len(owner)]))
        not_least = np.bincount(send[met > spread * NOISE], minlength=sends) > 0
        fixed = np.logical_or.reduceat(~not_least[send], starts)
        rates[owner[starts[fixed]]] = least[fixed]
        done = np.repeat(fixed, np.diff(np.r_[starts, len(owner)]))
        carried += np.bincount(send[done], weight[done] * spread[done], sends)
        owner, send, weight = owner[~done], send[~done], weight[~done]
    return rates
