"""Approaches the optimum with whole flows: places them one by one, then moves them off the most
used links.

A move is off the most used link to the path that it loads least. A flow that has just moved stays
for a while (tabu search, Glover 1989), so that the flow which it now crowds moves next: on a
two-tier Clos such a chain is the alternating path by which permutations are routed without conflict
(Koenig's edge colouring). Moves start from CSPF's placement: at scale the shares of the linear
programme leave more to repair than moves can.
"""

from __future__ import annotations

import math

import numpy as np

from rocelab.base.arrays import NONE, Floats, Longs
from rocelab.routes.te.compiling import entry, part
from rocelab.routes.te.optimum import least_maximum
from rocelab.routes.te.problem import (
    LONGEST_STAY,
    MOST_IN_VAIN,
    FlowRequests,
    Lists,
    Offer,
    Placed,
    Scratch,
    Work,
    fresh_work,
    scratch,
)
from rocelab.routes.te.search import best_path, place_in_order

MOST_MOVES = 10_000
_ENOUGH = 1e-9


@part
def draw(state: int) -> int:
    """The next of a repeatable sequence of numbers below 2^31 (the generator of ANSI C's rand)."""
    return (state * 1103515245 + 12345) % 2147483648


@part
def add_flow(flow: int, rate_bps: float, placed: Placed, lists: Lists, load_bps: Floats) -> None:
    """Add a flow to the lists of its sends and to their loads."""
    most = placed.sends.shape[1]
    for k in range(placed.hops[flow]):
        send = placed.sends[flow, k]
        entry = flow * most + k
        lists.after[entry] = lists.head[send]
        lists.before[entry] = NONE
        if lists.head[send] != NONE:
            lists.before[lists.head[send]] = entry
        lists.head[send] = entry
        load_bps[send] += rate_bps


@part
def remove_flow(flow: int, rate_bps: float, placed: Placed, lists: Lists, load_bps: Floats) -> None:
    """Take a flow off the lists of its sends and off their loads."""
    most = placed.sends.shape[1]
    for k in range(placed.hops[flow]):
        send = placed.sends[flow, k]
        entry = flow * most + k
        if lists.before[entry] == NONE:
            lists.head[send] = lists.after[entry]
        else:
            lists.after[lists.before[entry]] = lists.after[entry]
        if lists.after[entry] != NONE:
            lists.before[lists.after[entry]] = lists.before[entry]
        load_bps[send] -= rate_bps


@part
def cost(offer: Offer, load_bps: Floats) -> tuple[float, float]:
    """The greatest utilisation, and the sum of the squares of all."""
    greatest = 0.0
    squares = 0.0
    for send in range(len(load_bps)):
        if load_bps[send] > 0:
            used = load_bps[send] / offer.capacity_bps[send]
            squares += used * used
            greatest = max(greatest, used)
    return greatest, squares


@part
def one_of_the_most_used(offer: Offer, load_bps: Floats, greatest: float, number: int) -> int:
    """A send with the utilisation `greatest`; `number` chooses among several."""
    ties = 0
    for send in range(len(load_bps)):
        if load_bps[send] > 0 and load_bps[send] / offer.capacity_bps[send] >= greatest - _ENOUGH:
            ties += 1
    left = number % max(ties, 1)
    for send in range(len(load_bps)):
        if load_bps[send] > 0 and load_bps[send] / offer.capacity_bps[send] >= greatest - _ENOUGH:
            if left == 0:
                return send
            left -= 1
    return NONE


@part
def is_on(placed: Placed, flow: int, send: int) -> bool:
    """Whether a send is on the flow's path."""
    is_placed = False
    for k in range(placed.hops[flow]):
        is_placed |= placed.sends[flow, k] == send
    return is_placed


@part
def way_around(
    offer: Offer,
    wanted: FlowRequests,
    placed: Placed,
    flow: int,
    token: int,
    avoid: int,
    turned: int,
    room: Scratch,
    work: Work,
) -> float:
    """Write the flow's best path without `avoid` into the work's `path`. Returns the greatest
    resulting utilisation of sends that are new to the flow, inf without such a path. token: see
    `discover`; turned: see `best_path`."""
    load_bps, before_bps, path = work.load_bps, work.before_bps, work.path
    rate_bps = wanted.rate_bps[flow]
    for k in range(placed.hops[flow]):
        send = placed.sends[flow, k]
        before_bps[k] = load_bps[send]
        load_bps[send] -= rate_bps
    for k in range(len(path)):
        path[k] = NONE
    hops = best_path(offer, wanted, flow, token, avoid, turned, load_bps, room, path)
    for k in range(placed.hops[flow]):
        load_bps[placed.sends[flow, k]] = before_bps[k]
    if hops == NONE:
        return np.inf
    crowded = 0.0
    for k in range(hops):
        if not is_on(placed, flow, path[k]):
            used = (load_bps[path[k]] + rate_bps) / offer.capacity_bps[path[k]]
            crowded = max(crowded, used)
    return crowded


@entry
def move_off(
    offer: Offer, wanted: FlowRequests, placed: Placed, bound: float, room: Scratch, work: Work
) -> None:
    """Move flows off the most used send, one at a time, until none is used above `bound`.

    `placed` receives the placement of the lowest cost (see `cost`).
    """
    flows, most = placed.sends.shape
    lists, load_bps = work.lists, work.load_bps
    path, new_path = work.path, work.new_path
    for flow in range(flows):
        add_flow(flow, wanted.rate_bps[flow], placed, lists, load_bps)
    moves = 0
    best, best_squares = cost(offer, load_bps)
    greatest = best
    token = flows
    lot = 0
    turn = 0
    in_vain = 0
    while best > bound + _ENOUGH and in_vain < MOST_IN_VAIN and turn < MOST_MOVES:
        turn += 1
        in_vain += 1
        lot = draw(lot)
        worst = one_of_the_most_used(offer, load_bps, greatest, lot // 8)
        lot = draw(lot)
        tenure = 1 + lot // 8 % LONGEST_STAY
        chosen = NONE
        least = np.inf
        least_lot = 0
        entry = lists.head[worst]
        while entry != NONE:
            flow = entry // most
            entry = lists.after[entry]
            if turn - work.moved_at[flow] < tenure:
                continue
            token += 1
            lot = draw(lot)
            crowded = way_around(offer, wanted, placed, flow, token, worst, lot // 8, room, work)
            if crowded < least or (crowded == least and crowded < np.inf and lot < least_lot):
                chosen, least, least_lot = flow, crowded, lot
                for k in range(most):
                    new_path[k] = path[k]
        if chosen == NONE:
            continue
        work.moved[moves] = chosen
        for k in range(most):
            work.left_path[moves, k] = placed.sends[chosen, k]
        moves += 1
        remove_flow(chosen, wanted.rate_bps[chosen], placed, lists, load_bps)
        for k in range(most):
            placed.sends[chosen, k] = new_path[k]
        add_flow(chosen, wanted.rate_bps[chosen], placed, lists, load_bps)
        work.moved_at[chosen] = turn
        greatest, squares = cost(offer, load_bps)
        if greatest < best - _ENOUGH or (
            greatest < best + _ENOUGH and squares < best_squares - _ENOUGH
        ):
            best, best_squares, moves, in_vain = greatest, squares, 0, 0
    for move in range(moves - 1, -1, -1):
        for k in range(most):
            placed.sends[work.moved[move], k] = work.left_path[move, k]


def place_optimum(
    offer: Offer, wanted: FlowRequests, order: Longs, most_hops: int
) -> tuple[Placed, float]:
    """Place flows one by one where there is most room, then move them towards the optimum of split
    flows. Returns the placement and that optimum.

    Raises as `least_maximum`.
    """
    bound = least_maximum(offer, wanted, order, most_hops)
    placed = place_in_order(offer, wanted, order, scratch(len(offer.group), most_hops))
    room = scratch(len(offer.group), most_hops)
    work = fresh_work(len(offer.capacity_bps), *placed.sends.shape)
    move_off(offer, wanted, placed, _whole(offer, wanted, bound), room, work)
    return placed, bound


def _whole(offer: Offer, wanted: FlowRequests, bound: float) -> float:
    """The bound for whole flows: with one rate and one capacity a multiple of a flow's
    utilisation."""
    rates_bps = np.unique(wanted.rate_bps)
    rooms_bps = np.unique(offer.capacity_bps[offer.sends])
    rooms_bps = rooms_bps[rooms_bps > 0]
    if len(rates_bps) != 1 or len(rooms_bps) != 1:
        return bound
    part = float(rates_bps[0] / rooms_bps[0])
    return part * math.ceil(bound / part - _ENOUGH)
