"""The search of traffic engineering: the path with most room, flow by flow, over arrays.

Of the offered paths (all of them shortest: BGP keeps no others) a flow takes the one whose most
used send stays least used. Ties go to the path whose second most used send stays least used, and so
on, then to the kernel's order. Meta's TE places flows so, largest first, where there is most room
left (Gangidi et al., SIGCOMM 2024, section 5.3). The controller of a lab and the simulator run this
code: the simulator compiled, the controller as plain Python, some hundred times slower.
"""

from __future__ import annotations

import numpy as np

from rocelab.base.arrays import NONE, Floats, Ints, Longs
from rocelab.routes.te.compiling import entry, part
from rocelab.routes.te.problem import NOTHING, FlowRequests, Offer, Placed, Scratch

ARRIVED = -2


@part
def is_leaf_of(wanted: FlowRequests, flow: int, node: int) -> bool:
    """Whether `node` is wired to the destination of a flow."""
    is_leaf = False
    for port in range(wanted.leaves.shape[1]):
        is_leaf |= wanted.leaves[flow, port] == node
    return is_leaf


@part
def discover(offer: Offer, wanted: FlowRequests, flow: int, token: int, room: Scratch) -> int:
    """Write the switches that the flow can reach into the queue, nearest first. Returns their
    number.

    `token` must differ from that of every earlier search with this `room`.
    """
    home = wanted.home[flow]
    first = wanted.ingress[flow]
    room.queue[0] = first
    room.seen[first] = token
    room.hop[first] = NONE
    end = 1
    at = 0
    while at < end:
        node = room.queue[at]
        at += 1
        group = offer.group[node, home]
        if group == NONE or is_leaf_of(wanted, flow, node):
            continue
        for k in range(offer.start[group], offer.start[group + 1]):
            to = offer.receiver[offer.sends[k]]
            if room.seen[to] != token:
                room.seen[to] = token
                room.hop[to] = NONE
                room.queue[end] = to
                end += 1
    return end


@part
def comes_first(use: float, onward: Floats, best: Floats) -> bool:
    """Whether `own` among the falling `onward` comes before the falling `best`."""
    taken = False
    at = 0
    for k in range(len(best)):
        if not taken and (at >= len(onward) or use >= onward[at]):
            value = use
            taken = True
        else:
            value = float(onward[at])
            at += 1
        if value < best[k]:
            return True
        if value > best[k]:
            break
    return False


@part
def best_path(
    offer: Offer,
    wanted: FlowRequests,
    flow: int,
    token: int,
    avoid: int,
    turned: int,
    load_bps: Floats,
    room: Scratch,
    path: Ints,
) -> int:
    """Write the sends with most room for the flow into `path`, without the send `avoid`.

    Among equal paths the first in the kernel's order is taken, with that order rotated by `turned`
    places. Returns the number of sends; NONE without a path. The search visits switches from the
    destination back: all paths to one are of equal length, as BGP keeps only the shortest.
    """
    home = wanted.home[flow]
    rate_bps = wanted.rate_bps[flow]
    used = room.used
    most = used.shape[1]
    for at in range(discover(offer, wanted, flow, token, room) - 1, -1, -1):
        node = room.queue[at]
        if is_leaf_of(wanted, flow, node):
            room.hop[node] = ARRIVED
            for k in range(most):
                used[node, k] = NOTHING
            continue
        group = offer.group[node, home]
        if group == NONE:
            continue
        chosen = NONE
        begin, end = offer.start[group], offer.start[group + 1]
        first = begin + turned % max(end - begin, 1)
        for k in range(first, first + end - begin):
            send = offer.sends[k if k < end else k - (end - begin)]
            to = offer.receiver[send]
            capacity_bps = offer.capacity_bps[send]
            if send == avoid or room.hop[to] == NONE or capacity_bps <= 0:
                continue
            use = (load_bps[send] + rate_bps) / capacity_bps
            if chosen != NONE and not comes_first(use, used[to], used[node]):
                continue
            chosen = send
            rest = 0
            while rest < most - 1 and used[to, rest] > use:
                used[node, rest] = used[to, rest]
                rest += 1
            used[node, rest] = use
            for later in range(rest + 1, most):
                used[node, later] = used[to, later - 1]
        room.hop[node] = chosen
    node = wanted.ingress[flow]
    hops = 0
    while room.hop[node] >= 0:
        path[hops] = room.hop[node]
        node = offer.receiver[path[hops]]
        hops += 1
    return hops if room.hop[node] == ARRIVED else NONE


@entry
def place_each(
    offer: Offer,
    wanted: FlowRequests,
    order: Longs,
    avoid: int,
    turned: int,
    load_bps: Floats,
    room: Scratch,
    placed: Placed,
) -> None:
    """Place flows one by one and add them to `load_bps`; see `best_path` for the rest."""
    for at in range(len(order)):
        flow = order[at]
        path = placed.sends[flow]
        hops = best_path(offer, wanted, flow, flow, avoid, turned, load_bps, room, path)
        placed.hops[flow] = hops
        for k in range(hops):
            load_bps[path[k]] += wanted.rate_bps[flow]


def place_in_order(offer: Offer, wanted: FlowRequests, order: Longs, room: Scratch) -> Placed:
    """Place flows one by one, each where its most used send stays least used. Flows not in `order`
    have no path."""
    flows = len(wanted.ingress)
    placed = Placed(
        np.full(flows, NONE, np.int32), np.full((flows, room.used.shape[1]), NONE, np.int32)
    )
    load_bps = np.zeros(len(offer.capacity_bps))
    place_each(offer, wanted, order, NONE, 0, load_bps, room, placed)
    return placed
