"""How far merged rings may be from those whose chunks go one by one (`most_error`).

Merged, each hop of a ring sends all the time. Where chunks also wait for latency, hops that share a
link send less often at the same time than that, and the ring is faster: by what nobody's sharing
would save at most. Where the channels of a ring part and meet again, as on NVLink and rails, their
chunks wait for each other at busy hops, and the ring is slower.
"""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import Bools, Floats
from rocelab.routes.arrays.flows import Flows, Paths, paths_taken
from rocelab.sim.engine.program import Program

MOST_ERROR = 0.01
"""Rings that may be further off are not merged, where so many sends can be simulated."""

MEETING_ERROR = 0.07
"""How much longer than merged rings those take whose channels meet, where the busiest hop is busy
for MEETING_LEAST to MEETING_MOST of a chunk's way: the most that was seen, of 64 ranks."""

MEETING_LEAST, MEETING_MOST = 0.5, 1.1


def most_error(
    program: Program, flows: Flows, paths: Paths, capacity_bps: Floats, chosen: Bools
) -> float:
    """The largest share of its time that a ring of the chosen tasks (T), which run at once, is
    too long or too short at most; 0 without rings. paths: of each flow. capacity_bps: of each
    send."""
    rings = program.rings
    if rings is None or not len(rings.share):
        return 0.0
    task = np.repeat(np.arange(program.tasks), np.diff(program.first_transfer))
    (hop,) = np.nonzero(chosen[task] & (rings.of_transfer >= 0))
    if not len(hop):
        return 0.0
    ring = rings.of_transfer[hop]
    taken = paths_taken(paths, program.flow[hop])
    lengths = np.diff(taken.start)
    bits = np.repeat(program.size_bits[hop], lengths)
    if taken.share is not None:
        bits = bits * taken.share
    with np.errstate(divide="ignore"):
        alone_s = bits / capacity_bps[taken.sends]
    together_s = np.bincount(taken.sends, alone_s, len(capacity_bps))[taken.sends]
    of_entry = np.repeat(np.arange(len(hop)), lengths)
    # The queue pairs of a hop share their links with each other anyway.
    flow = program.flow[hop][of_entry]
    ends = flows.source[flow].astype(np.int64) * 2**31 + flows.destination[flow]
    _, pair = np.unique(ends, return_inverse=True)
    _, entry = np.unique(pair * len(capacity_bps) + taken.sends, return_inverse=True)
    alone_s = np.asarray(np.bincount(entry, alone_s)[entry], np.float64)
    hop_s, alone_hop_s = np.zeros((2, len(hop)))
    np.maximum.at(hop_s, of_entry, together_s)
    np.maximum.at(alone_hop_s, of_entry, alone_s)
    count = len(rings.share)
    slowest_s = np.zeros(count)
    np.maximum.at(slowest_s, ring, hop_s)
    chunk_s = rings.share * np.bincount(ring, hop_s, count) + rings.latency_s
    least_s = rings.share * np.bincount(ring, alone_hop_s, count) + rings.latency_s
    merged_s = np.maximum(slowest_s, chunk_s)
    with np.errstate(invalid="ignore"):
        error = 1 - np.maximum(slowest_s, least_s) / merged_s
        busy = slowest_s / chunk_s
    waits = rings.meets & (busy > MEETING_LEAST) & (busy < MEETING_MOST)
    error = np.maximum(np.nan_to_num(error), np.where(waits, MEETING_ERROR, 0.0))
    return float(error[np.unique(ring)].max())
