"""Tests whether splitting every flow evenly is optimal, as it is on most healthy fabrics.

Computes the load of every send when each switch divides a flow evenly, and a lower bound for every
division of flows: every flow crosses the most used sends at least a known number of times, and
their capacity is limited. If the two are equal, no linear programme has to be solved.
"""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import NONE, Floats, Longs
from rocelab.routes.te.compiling import entry, part
from rocelab.routes.te.problem import FlowRequests, Offer, Scratch, scratch
from rocelab.routes.te.search import ARRIVED, discover, is_leaf_of

_ENOUGH = 1e-9


@part
def cross_least(
    offer: Offer, wanted: FlowRequests, flow: int, token: int, weight: Floats, room: Scratch
) -> int:
    """Write the least weight of sends between each switch and the flow's destination into used[:,
    0]; `hop` is NONE without a path. Returns the number of switches in the queue."""
    home = wanted.home[flow]
    end = discover(offer, wanted, flow, token, room)
    for at in range(end - 1, -1, -1):
        node = room.queue[at]
        if is_leaf_of(wanted, flow, node):
            room.hop[node] = ARRIVED
            room.used[node, 0] = 0.0
            continue
        group = offer.group[node, home]
        if group == NONE:
            continue
        room.used[node, 0] = np.inf
        for k in range(offer.start[group], offer.start[group + 1]):
            send = offer.sends[k]
            to = offer.receiver[send]
            if room.hop[to] != NONE and offer.capacity_bps[send] > 0:
                room.hop[node] = send
                room.used[node, 0] = min(room.used[node, 0], weight[send] + room.used[to, 0])
    return end


@entry
def spread_evenly(
    offer: Offer,
    wanted: FlowRequests,
    order: Longs,
    room: Scratch,
    share_bps: Floats,
    load_bps: Floats,
) -> None:
    """Add to `load_bps` the load of each send when every switch on the way divides a flow evenly
    over its choices.

    `room` must be fresh; share_bps: working array, N. Flows without a path load nothing.
    """
    for which in range(len(order)):
        flow = order[which]
        end = cross_least(offer, wanted, flow, flow, load_bps, room)
        if room.hop[wanted.ingress[flow]] == NONE:
            continue
        for at in range(end):
            share_bps[room.queue[at]] = 0.0
        share_bps[wanted.ingress[flow]] = wanted.rate_bps[flow]
        for at in range(end):
            node = room.queue[at]
            if room.hop[node] < 0:
                continue
            group = offer.group[node, wanted.home[flow]]
            ways = 0
            for k in range(offer.start[group], offer.start[group + 1]):
                send = offer.sends[k]
                if room.hop[offer.receiver[send]] != NONE and offer.capacity_bps[send] > 0:
                    ways += 1
            for k in range(offer.start[group], offer.start[group + 1]):
                send = offer.sends[k]
                to = offer.receiver[send]
                if room.hop[to] != NONE and offer.capacity_bps[send] > 0:
                    load_bps[send] += share_bps[node] / ways
                    share_bps[to] += share_bps[node] / ways


@entry
def crossings(
    offer: Offer, wanted: FlowRequests, order: Longs, weight: Floats, room: Scratch
) -> float:
    """The least weight that the flows can load, in bit/s. `room` must be fresh."""
    total_bps = 0.0
    for which in range(len(order)):
        flow = order[which]
        cross_least(offer, wanted, flow, flow, weight, room)
        first = wanted.ingress[flow]
        if room.hop[first] != NONE:
            total_bps += wanted.rate_bps[flow] * room.used[first, 0]
    return total_bps


def even_split(offer: Offer, wanted: FlowRequests, most_hops: int) -> tuple[float, float]:
    """The greatest utilisation when flows are split evenly, and a lower bound for every division.

    The bound is that of weak duality: weights on the most used sends are a solution of the dual of
    the maximum concurrent flow (Shahrokhi and Matula, Journal of the ACM 37(2), 1990).
    """
    every, nodes = np.arange(len(wanted.home)), len(offer.group)
    load_bps = np.zeros(len(offer.capacity_bps))
    spread_evenly(offer, wanted, every, scratch(nodes, most_hops), np.zeros(nodes), load_bps)
    used = np.divide(load_bps, offer.capacity_bps, out=np.zeros(len(load_bps)), where=load_bps > 0)
    greatest = float(used.max(initial=0.0))
    if greatest == 0:
        return 0.0, 0.0
    weight = (used >= greatest - _ENOUGH).astype(float)
    crossing_bps = crossings(offer, wanted, every, weight, scratch(nodes, most_hops))
    return greatest, crossing_bps / float(weight @ offer.capacity_bps)
